#!/bin/busybox sh
# First process of the test guest: makes the system usable, loads the module, runs the command, says how it ended.
# Knows nothing of the tests. Its last line is read by run_guest.py: "NDS GUEST EXIT <code> <why>".
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root LANG=C.UTF-8 PYTHONPATH=/app PYTHONUNBUFFERED=1
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/shm /tmp /root
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
chmod 1777 /tmp /dev/shm
ip link set lo up

# finish CODE WHY: the last line, once the console has it all
finish() {
    echo "NDS GUEST EXIT $*"
    stty sane </dev/console
    poweroff -f
}

insmod /nds_test.ko $(cat /etc/nds-module) || finish 125 the module does not load
cd /app
sh /etc/nds-command </dev/null
code=$?

# The module must let go of everything once its users are gone, and the kernel must have nothing to complain about.
kill -9 -1
tries=0
while [ -e /sys/module/nds_test ] && ! rmmod nds_test 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || finish 125 the module does not unload
    sleep 0.1
done
# Bits of "tainted": 5 bad page, 7 oops, 9 warning, 14 soft lockup.
if [ $(($(cat /proc/sys/kernel/tainted) & 0x42a0)) -ne 0 ]; then
    dmesg | tail -n 60
    finish 125 the kernel complained, see above
fi
finish $code the command ended
