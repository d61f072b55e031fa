"""Names of the devices that the xe driver binds, by PCI device id."""

from __future__ import annotations

_NAMES: dict[int, str] = {
    0xE202: "Intel Battlemage G21",
    0xE209: "Intel Battlemage G21",
    0xE20B: "Intel Arc B580 Graphics",
    0xE20C: "Intel Arc B570 Graphics",
    0xE20D: "Intel Battlemage G21",
    0xE210: "Intel Battlemage G21",
    0xE211: "Intel Arc Pro B60 Graphics",
    0xE212: "Intel Arc Pro B50 Graphics",
    0xE215: "Intel Battlemage G21",
    0xE216: "Intel Battlemage G21",
    0xE220: "Intel Battlemage G31",
    0xE221: "Intel Battlemage G31",
    0xE222: "Intel Battlemage G31",
    0xE223: "Intel Arc Pro B70 Graphics",
    0x6420: "Intel Lunar Lake Graphics",
    0x64A0: "Intel Arc Graphics 130V/140V (Lunar Lake)",
    0x64B0: "Intel Lunar Lake Graphics",
    0x7D40: "Intel Graphics (Meteor Lake)",
    0x7D45: "Intel Graphics (Meteor Lake)",
    0x7D55: "Intel Arc Graphics (Meteor Lake)",
    0x7DD5: "Intel Graphics (Meteor Lake)",
    0x7D41: "Intel Graphics (Arrow Lake)",
    0x7D51: "Intel Arc Graphics (Arrow Lake)",
    0x7D67: "Intel Graphics (Arrow Lake)",
    0x7DD1: "Intel Graphics (Arrow Lake)",
    0x56A0: "Intel Arc A770 Graphics",
    0x56A1: "Intel Arc A750 Graphics",
    0x56A2: "Intel Arc A580 Graphics",
    0x56A5: "Intel Arc A380 Graphics",
    0x56A6: "Intel Arc A310 Graphics",
    0x56B0: "Intel Arc Pro A30M Graphics",
    0x56B1: "Intel Arc Pro A40/A50 Graphics",
    0x56B3: "Intel Arc Pro A60 Graphics",
    0x5690: "Intel Arc A770M Graphics",
    0x5691: "Intel Arc A730M Graphics",
    0x5692: "Intel Arc A550M Graphics",
    0x5693: "Intel Arc A370M Graphics",
    0x5694: "Intel Arc A350M Graphics",
    0x56C0: "Intel Data Center GPU Flex 170",
    0x56C1: "Intel Data Center GPU Flex 140",
    0x0BD5: "Intel Data Center GPU Max 1550",
    0x0BDA: "Intel Data Center GPU Max 1100",
    0x4905: "Intel Iris Xe MAX Graphics",
    0x4908: "Intel Server GPU SG-18M",
    0x9A49: "Intel Iris Xe Graphics (Tiger Lake)",
    0x46A6: "Intel Iris Xe Graphics (Alder Lake)",
    0xA7A0: "Intel Iris Xe Graphics (Raptor Lake)",
    **dict.fromkeys(range(45184, 45200), "Intel Graphics (Panther Lake)"),
}


def device_name(device_id: int) -> str:
    """A name people know, else ``Intel GPU 8086:xxxx``."""
    return _NAMES.get(device_id, f"Intel GPU 8086:{device_id:04x}")
