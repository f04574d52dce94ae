"""The commands about a device's totals: ``sysfs`` shows them as the driver's tree, ``reset`` starts them anew."""

from __future__ import annotations

import sys

import click

from neuron_ds.cli.base import NEGATIVE, OK, Failure, Finite, print_json, put, tell


@click.command(short_help="Device totals as the tree the driver has below /sys.")
@click.option("-w", "--write", "folder", metavar="FOLDER", help="Write the tree as files below FOLDER instead.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One object: path to value.")
@click.option("--looks", type=click.IntRange(1), default=1, show_default=True, help="How often to look.")
@click.option("--every", type=Finite(0, 86400), default=1.0, show_default=True, help="Seconds between the looks.")
def sysfs(folder: str | None, as_json: bool, looks: int, every: float) -> int:
    """Print every file of the sysfs tree with its value, or write the tree for scripts that read the real one.

    Totals include the processes that live, which the real tree adds when they end. ``present`` is the change between
    the last two looks and ``peak`` the highest one: a single look shows 0 and the current use. Exit 0; 1 without a
    device, 2 if it can't be read.
    """
    import time

    from neuron_ds.driver import get_driver
    from neuron_ds.sysfs import SysfsView

    driver = get_driver()
    if not driver.devices():
        return tell("no Neuron device; neuron-ds doctor tells more", NEGATIVE)
    view = SysfsView(driver)
    for look in range(looks):
        if look:
            time.sleep(every)
        view.look()
        if folder is not None:
            view.write(folder)
    if folder is not None:
        tell(f"{len(view.tree())} files below {folder}")
    elif as_json:
        print_json(view.tree())
    else:
        for path, text in view.tree().items():
            put(f"{path} {text}")
    return OK


@click.command(short_help="Start the totals of a device from zero.")
@click.argument("number", metavar="[DEVICE]", type=int, required=False)
@click.option("-d", "--device", type=int, help="Device number, as in the other commands.  [default: 0]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def reset(number: int | None, device: int | None, yes: bool) -> int:
    """Start the totals of DEVICE from zero, once nobody publishes on it. Asks first.

    Exit 0 when done; 1 when the answer was no or a process still publishes; 2 where it can't be done at all, or there
    is nobody to ask.
    """
    if None not in (number, device):
        raise Failure("DEVICE and --device say the same; use one of them")
    device = number if device is None else device
    device = device or 0
    from neuron_ds.driver import get_driver
    from neuron_ds.errors import StillOwned

    driver = get_driver()
    where = driver.properties(device).path
    if driver.can_reset and not yes and not _confirmed(f"Start the totals of {where} from zero?"):
        return tell("nothing changed", NEGATIVE)
    try:
        driver.reset(device)
    except StillOwned as e:
        return tell(str(e), NEGATIVE)
    tell(f"the totals of {where} start from zero")
    return OK


def _confirmed(question: str) -> bool:
    """The answer of a terminal, or of whatever else has one. Raises Failure where nothing has."""
    if sys.stdin is not None and sys.stdin.isatty():
        return click.confirm(question, err=True)
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer:
        raise Failure("standard input is not a terminal; use --yes")
    return answer.strip().lower() in ("y", "yes")
