"""Single values: each type's tagged form and the way back, side by side."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from durable_celery.codec.refusal import Refused
from durable_celery.errors import BadValue

Tagged = dict[str, Any]
Moment = TypeVar("Moment", datetime, time)

# Two halves of a surrogate pair that are two characters in Python become one character on the way through JSON.
_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")

# Python refuses to write or read longer decimals than sys.get_int_max_str_digits(), 640 digits at the least.
_DECIMAL_BITS = 2000


def pack_str(value: str) -> Any:
    """Text as it is; in pieces where JSON would join two lone surrogates."""
    if value.isascii() or not _HALVES.search(value):
        return value
    return {"$": "str", "v": _HALVES.split(value)}


def unpack_str(tagged: Tagged) -> str:
    return "".join(tagged["v"])


def pack_int(value: int) -> Any:
    return value if value.bit_length() <= _DECIMAL_BITS else {"$": "int", "v": hex(value)}


def unpack_int(tagged: Tagged) -> int:
    return int(tagged["v"], 16)


def pack_float(value: float) -> float:
    if not isfinite(value):
        raise Refused(f"{value} is not a number JSON can hold", "Use None, or text, for a number that is not there")
    return value


def pack_decimal(value: Decimal) -> Tagged:
    if not value.is_finite():
        raise Refused(
            f"Decimal({str(value)!r}) is not a finite number", "Use None, or text, for a number that is not there"
        )
    return {"$": "decimal", "v": str(value)}


def unpack_decimal(tagged: Tagged) -> Decimal:
    return Decimal(tagged["v"])


def pack_bytes(value: bytes) -> Tagged:
    return {"$": "bytes", "v": b64encode(value).decode("ascii")}


def unpack_bytes(tagged: Tagged) -> bytes:
    return b64decode(tagged["v"], validate=True)


def pack_bytearray(value: bytearray) -> Tagged:
    return {"$": "bytearray", "v": b64encode(value).decode("ascii")}


def unpack_bytearray(tagged: Tagged) -> bytearray:
    return bytearray(unpack_bytes(tagged))


def pack_uuid(value: UUID) -> Tagged:
    return {"$": "uuid", "v": str(value)}


def unpack_uuid(tagged: Tagged) -> UUID:
    return UUID(tagged["v"])


def pack_date(value: date) -> Tagged:
    return {"$": "date", "v": value.isoformat()}


def unpack_date(tagged: Tagged) -> date:
    return date.fromisoformat(tagged["v"])


def pack_timedelta(value: timedelta) -> Tagged:
    return {"$": "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def unpack_timedelta(tagged: Tagged) -> timedelta:
    days, seconds, microseconds = tagged["v"]
    return timedelta(days, seconds, microseconds)


def pack_datetime(value: datetime) -> Tagged:
    return _pack_moment("datetime", value)


def unpack_datetime(tagged: Tagged) -> datetime:
    return _zoned(datetime.fromisoformat(tagged["v"]), tagged)


def pack_time(value: time) -> Tagged:
    return _pack_moment("time", value)


def unpack_time(tagged: Tagged) -> time:
    return _zoned(time.fromisoformat(tagged["v"]), tagged)


def _pack_moment(tag: str, value: datetime | time) -> Tagged:
    """Clock text; ``z`` a zone's key, ``n`` the name given to a fixed offset, ``f`` the second pass of a fold."""
    zone = value.tzinfo
    packed: Tagged = {"$": tag, "v": value.isoformat()}
    if type(zone) is ZoneInfo and zone.key:
        packed["v"] = value.replace(tzinfo=None).isoformat()
        packed["z"] = zone.key
    elif type(zone) is timezone:
        _, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        packed.update({"n": name[0]} if name else {})
    elif zone is not None:
        raise Refused(
            f"its time zone is a {type(zone).__module__}.{type(zone).__qualname__}, which has no name to be found by",
            "Use zoneinfo.ZoneInfo('Area/City') or datetime.timezone, for example value.astimezone(timezone.utc)",
        )
    if value.fold:
        packed["f"] = 1
    return packed


def _zoned(moment: Moment, tagged: Tagged) -> Moment:
    zone: tzinfo | None = moment.tzinfo
    if "z" in tagged:
        zone = _zone(tagged["z"])
    elif "n" in tagged:
        offset = moment.utcoffset()
        zone = timezone(offset if offset is not None else timedelta(0), tagged["n"])
    elif "f" not in tagged:
        return moment
    return moment.replace(tzinfo=zone, fold=tagged.get("f", 0))


def _zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except Exception as error:
        raise BadValue(
            f"a stored time is in the zone {key!r}, which this machine does not know; install the tzdata package"
        ) from error


LEAVES: dict[type, Callable[[Any], Any]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: pack_int,
    float: pack_float,
    str: pack_str,
    bytes: pack_bytes,
    bytearray: pack_bytearray,
    Decimal: pack_decimal,
    UUID: pack_uuid,
    datetime: pack_datetime,
    date: pack_date,
    time: pack_time,
    timedelta: pack_timedelta,
}

UNPACK_LEAVES: dict[str, Callable[[Tagged], Any]] = {
    "str": unpack_str,
    "int": unpack_int,
    "bytes": unpack_bytes,
    "bytearray": unpack_bytearray,
    "decimal": unpack_decimal,
    "uuid": unpack_uuid,
    "datetime": unpack_datetime,
    "date": unpack_date,
    "time": unpack_time,
    "timedelta": unpack_timedelta,
}
