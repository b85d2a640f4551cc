"""Installed versions against what t2x asks for, and which extras are there."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement

from t2x.doctor.findings import Finding

NOT_FOR_USE = ("dev", "docs")  # extras of those who build t2x

__all__ = ["check_extras", "check_libraries"]


def check_libraries() -> list[Finding]:
    """What the base install needs: one line for all that is well, one for each that is not."""
    found, wrong = {}, []
    for requirement in _requirements(""):
        installed, advice = _state(requirement)
        found[requirement.name] = installed
        if advice:
            said = f"{requirement.name} {installed or 'is not installed'}, needed is {requirement}"
            facts = {"installed": installed, "needed": str(requirement.specifier)}
            wrong.append(Finding("libraries", "problem", said, advice, facts))
    said = ", ".join(f"{name} {number}" for name, number in found.items() if number)
    return [Finding("libraries", "ok", f"t2x {version('t2x')}: {said}", facts=found), *wrong]


def check_extras() -> list[Finding]:
    """One line for each extra: what it brings is there, or what to install."""
    names = [n for n in metadata("t2x").get_all("Provides-Extra") or [] if n not in NOT_FOR_USE]
    return [_extra(name) for name in names]


def _extra(name: str) -> Finding:
    states = {r.name: _state(r) for r in _requirements(name)}
    facts = {"extra": name, "packages": {pack: state[0] for pack, state in states.items()}}
    shown = ", ".join(f"{pack} {state[0]}" for pack, state in states.items() if state[0])
    absent = [pack for pack, state in states.items() if state[0] is None]
    old = [pack for pack, state in states.items() if state[0] is not None and state[1]]
    install = f"pip install -U 't2x[{name}]'"
    if old and not absent:
        return Finding(f"extra {name}", "warning", f"too old: {', '.join(old)}", install, facts)
    if absent:
        said = f"not installed: {', '.join(absent)}"
        return Finding(f"extra {name}", "ok", said, install, facts)
    return Finding(f"extra {name}", "ok", shown or "nothing to install", facts=facts)


def _requirements(extra: str) -> list[Requirement]:
    """What the installed package asks for: its base, or what one extra adds."""
    found = []
    for text in requires("t2x") or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None:
            belongs = not extra
        else:
            base, with_extra = (marker.evaluate({"extra": name}) for name in ("", extra))
            belongs = with_extra and (not extra or not base)
        if belongs:
            found.append(requirement)
    return found


def _state(requirement: Requirement) -> tuple[str | None, str]:
    """Installed version, and what to do if that will not do."""
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return None, f"pip install '{requirement.name}{requirement.specifier}'"
    if requirement.specifier.contains(installed, prereleases=True):
        return installed, ""
    return installed, f"pip install -U '{requirement.name}{requirement.specifier}'"
