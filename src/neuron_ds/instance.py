"""What machine this is: the instance as EC2 names it.

Type and id of an instance stand in its firmware tables. The rest only its metadata service knows: it is asked in a
thread of its own and only on EC2, so that no report ever waits for an answer, and again a few times where it doesn't
answer, as may be while the machine boots. This module knows no counter.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from neuron_ds.records import printable

DMI = Path("/sys/devices/virtual/dmi/id")
ENDPOINT_VARIABLE, DISABLED_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_DISABLED"
_ENDPOINT = "http://169.254.169.254"
#: How long one question may take.
PATIENCE_S = 1.0
#: A service that doesn't answer is asked again after so long each; then it is taken to be out of reach.
WAITS_S = (5.0, 15.0, 45.0, 135.0)
_MAX_ANSWER = 4096
_FAILURES = (OSError, ValueError, http.client.HTTPException)

FIELDS = (
    "instance_name",
    "instance_id",
    "instance_type",
    "instance_availability_zone",
    "instance_availability_zone_id",
    "instance_region",
    "ami_id",
    "subnet_id",
)
_PATHS = {
    "instance_id": "instance-id",
    "instance_type": "instance-type",
    "instance_availability_zone": "placement/availability-zone",
    "instance_availability_zone_id": "placement/availability-zone-id",
    "instance_region": "placement/region",
    "ami_id": "ami-id",
    "instance_name": "tags/instance/Name",
}


class InstanceInfo:
    """What is known of the instance so far."""

    def __init__(
        self,
        *,
        ask: bool = True,
        environ: Mapping[str, str] | None = None,
        dmi: Path = DMI,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """With ``ask`` the metadata service is asked in the background, if this is EC2 or a variable names one.

        pause: how that thread waits before it asks again.
        """
        environ = os.environ if environ is None else environ
        self._known = dict.fromkeys(FIELDS, "")
        self._error = ""
        self._pause = pause
        self.asked: threading.Thread | None = None
        self.tried = threading.Event()  #: set when it was asked for the first time, answer or not, or nobody is asked
        on_ec2 = _firmware(dmi, "sys_vendor") == "Amazon EC2"
        if on_ec2:
            self._known["instance_type"] = _firmware(dmi, "product_name")
            asset = _firmware(dmi, "board_asset_tag")
            self._known["instance_id"] = asset if asset.startswith("i-") else ""
        endpoint = environ.get(ENDPOINT_VARIABLE) or (_ENDPOINT if on_ec2 else "")
        if ask and endpoint and environ.get(DISABLED_VARIABLE, "").lower() != "true":
            self._error = "the instance metadata service has not answered yet"
            self.asked = threading.Thread(
                target=self._ask, args=(endpoint.rstrip("/"),), name="neuron-ds-instance", daemon=True
            )
            self.asked.start()
        else:
            self.tried.set()

    def group(self) -> dict[str, str]:
        """The group as it is now; never waits."""
        return {**self._known, "error": self._error}

    def _ask(self, endpoint: str) -> None:
        answered = self._ask_once(endpoint)
        self.tried.set()
        for wait_s in WAITS_S:
            if answered:
                return
            self._pause(wait_s)
            answered = self._ask_once(endpoint)

    def _ask_once(self, endpoint: str) -> bool:
        """False if the service did not answer at all, so that it may later; True also where it never will."""
        try:
            token = _request(f"{endpoint}/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        except _FAILURES as e:
            refused = isinstance(e, urllib.error.HTTPError)
            does = "refuses to tell" if refused else "does not answer"
            self._error = printable(f"the instance metadata service {does}: {getattr(e, 'reason', e)}")
            return refused or not isinstance(e, OSError)
        header = {"X-aws-ec2-metadata-token": token}
        found, missing = {}, []
        for name, path in _PATHS.items():
            found[name] = _answer(endpoint, path, header)
            if found[name] is None and name != "instance_name":  # the name is there only if tags are let in
                missing.append(name)
        mac = _answer(endpoint, "mac", header)
        found["subnet_id"] = _answer(endpoint, f"network/interfaces/macs/{mac}/subnet-id", header) if mac else None
        if found["subnet_id"] is None:
            missing.append("subnet_id")
        self._known = {name: found.get(name) or old for name, old in self._known.items()}
        self._error = f"the instance metadata service does not tell {', '.join(missing)}" if missing else ""
        return True


def _firmware(dmi: Path, name: str) -> str:
    try:
        return printable((dmi / name).read_text().strip())
    except (OSError, ValueError):
        return ""


#: The service is on the link: no proxy of the environment leads there.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _request(url: str, method: str, headers: Mapping[str, str]) -> str:
    if not url.startswith("http://"):
        raise ValueError(f"{url} is no http address")
    request = urllib.request.Request(url, method=method, headers=dict(headers))
    with _opener.open(request, timeout=PATIENCE_S) as answer:
        return str(answer.read(_MAX_ANSWER).decode())


def _answer(endpoint: str, path: str, headers: Mapping[str, str]) -> str | None:
    try:
        return printable(_request(f"{endpoint}/latest/meta-data/{path}", "GET", headers).strip())
    except _FAILURES:
        return None
