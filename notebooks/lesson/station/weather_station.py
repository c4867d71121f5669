"""Tools of a weather station, as an operator writes them: functions with type hints, no more."""

import asyncio
import datetime as dt
import enum
from dataclasses import dataclass
from typing import Annotated, Literal

from cellblock.tools import SECRET


class Unit(enum.Enum):
    """What degrees are of."""

    celsius = "celsius"
    fahrenheit = "fahrenheit"


@dataclass(frozen=True)
class Reading:
    """What was measured on a day."""

    day: dt.date
    degrees: float


_DAYS = [dt.date(2026, 6, day) for day in (1, 2, 3, 4)]
_MEASURED = {
    "north": [Reading(*one) for one in zip(_DAYS, (11.5, 13.0, 9.5, 12.0), strict=True)],
    "south": [Reading(*one) for one in zip(_DAYS, (19.0, 20.5, 18.0, 21.0), strict=True)],
}
_PASSWORD = "correct horse"  # yours comes from the host's environment, say


def readings(since: dt.date, *, unit: Unit = Unit.celsius) -> list[Reading]:
    """Tell what the northern station measured from a day on."""
    found = [one for one in _MEASURED["north"] if one.day >= since]
    if unit is Unit.fahrenheit:
        return [Reading(one.day, one.degrees * 9 / 5 + 32) for one in found]
    return found


async def latest(station: Literal["north", "south"]) -> Reading:
    """Ask a station what it measured last, which takes it a moment."""
    await asyncio.sleep(0.3)
    return _MEASURED[station][-1]


def publish(reading: Reading, password: Annotated[str, SECRET]) -> str:
    """Publish a reading, for who knows the password."""
    if password != _PASSWORD:
        raise PermissionError("that is not the password")
    return f"{reading.degrees:g} degrees, {reading.day:%d %B}"
