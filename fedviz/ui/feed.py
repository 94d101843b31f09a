"""How the messages of all charts of a tick travel as one: each preceded by its chart's key, with a byte for how long that is, and by
its own length in four bytes. `feed` in static/live_plotly.js takes them apart.
"""

from __future__ import annotations

import struct


def packed(messages: dict[str, bytes]) -> bytes:
    """All as one; the keys are short and of ASCII letters."""
    parts: list[bytes] = []
    for key, message in messages.items():
        parts += [struct.pack("<B", len(key)), key.encode("ascii"), struct.pack("<I", len(message)), message]
    return b"".join(parts)


def unpacked(data: bytes) -> dict[str, bytes]:
    """The messages by the keys of their charts, as a browser finds them."""
    messages, at = {}, 0
    while at < len(data):
        key_end = at + 1 + data[at]
        begin = key_end + 4
        end = begin + int.from_bytes(data[key_end:begin], "little")
        messages[data[at + 1 : key_end].decode("ascii")] = data[begin:end]
        at = end
    return messages
