#!/bin/busybox sh
# In the guest, for tests that want devices nobody has used yet: every tick zero, every total zero.
rmmod nds_test && insmod /nds_test.ko $(cat /etc/nds-module)
