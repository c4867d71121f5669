"""Kernels whose cells may call the models of ``support.endpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.endpoint import KEY, MODELS
from support.kernels import argv_for

if TYPE_CHECKING:
    from support.endpoint import Endpoint
    from support.kernels import World

#: The variables for a kernel's process.
ENVIRONMENT = {"LAB_KEY": KEY}


def argv(
    world: World, endpoint: Endpoint, mode: str = "", head: str = "", **limits: object
) -> list:
    """Return the command of a kernel whose policy grants the endpoint's models."""
    rows = {"base_url": endpoint.base_url, "models": list(MODELS), "key_env": "LAB_KEY"} | limits
    text = "\n".join(f"{name} = {value!r}" for name, value in rows.items())
    start = f'extends = "{mode}"\n' if mode else ""
    policy = world.policy(f"{start}{head}\n[llm]\n{text}\n", name=f"lab{len(text)}")
    return argv_for(policy, *(["--allow-unsafe"] if mode == "unsafe" else []))
