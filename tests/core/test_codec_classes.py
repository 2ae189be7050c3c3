"""Classes that moved, changed or went away between writing and reading, and texts that name what they should not."""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pydantic
import pytest

from durable_celery.codec import decode, encode, register_alias, register_type
from durable_celery.errors import BadValue
from tests.core.modules import Module

HERE = __name__


@dataclass
class Receipt:
    id: int
    currency: str = "EUR"
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    id: int


@dataclass
class Strict:
    id: int
    amount: Decimal


class Pair(NamedTuple):
    left: int
    right: int = 5


class Model(pydantic.BaseModel):
    id: int
    currency: str = "EUR"
    notes: list[str] = pydantic.Field(default_factory=list)
    _seen: int = pydantic.PrivateAttr(default=2)


class Needy(pydantic.BaseModel):
    id: int
    amount: Decimal


class Color(enum.Enum):
    RED = 1


class Right(enum.Flag):
    READ = 1


class Unregistered:
    pass


class Fussy:
    pass


def refuse(stored: Any) -> Any:
    raise LookupError("no such thing")


register_type(Fussy, encode=lambda fussy: None, decode=refuse)


def stored(kind: str, fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"$": "object", "t": f"{HERE}:{kind}", "v": fields, **more})


def test_an_unregistered_class_in_a_stored_value_says_where_to_register() -> None:
    with pytest.raises(BadValue, match=r"Unregistered, which is not registered in this process; call register_type"):
        decode(json.dumps({"$": "registered", "t": f"{HERE}:Unregistered", "v": 1}))


def test_a_failing_decode_function_is_named() -> None:
    with pytest.raises(BadValue, match=r"decode function registered for .*Fussy raised LookupError: no such thing"):
        decode(encode(Fussy()))


# -- moved classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "old"),
    [(Receipt(1), "Receipt"), (Color.RED, "Color"), (Pair(1), "Pair"), (Model(id=1), "Model")],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_moved_class_is_found_by_its_alias(value: Any, old: str) -> None:
    text = encode([value]).replace(f"{HERE}:{old}", f"shop.moved:Outer.{old}")
    with pytest.raises(BadValue, match=f"shop.moved.Outer.{old}"):
        decode(text)

    register_alias(type(value), f"shop.moved.Outer.{old}")

    assert decode(text) == [value]
    assert type(decode(text)[0]) is type(value)


def test_an_alias_wins_over_what_still_has_the_old_name(module: Module) -> None:
    module("codec_old_place", Receipt=dataclass(type("Receipt", (), {"__annotations__": {"id": int}})))
    text = encode(Receipt(1)).replace(f"{HERE}:Receipt", "codec_old_place:Receipt")
    assert type(decode(text)) is not Receipt

    register_alias(Receipt, "codec_old_place.Receipt")

    assert type(decode(text)) is Receipt


def test_a_class_imported_at_its_old_place_needs_no_alias(module: Module) -> None:
    module("codec_reexport").Receipt = Receipt  # type: ignore[attr-defined]

    assert decode(encode(Receipt(1)).replace(f"{HERE}:Receipt", "codec_reexport:Receipt")) == Receipt(1)


def test_one_alias_cannot_stand_for_two_classes() -> None:
    register_alias(Receipt, "shop.contested.Receipt")
    register_alias(Receipt, "shop.contested.Receipt")

    with pytest.raises(BadValue, match=r"'shop.contested.Receipt' stands for .*\.Receipt already"):
        register_alias(Pair, "shop.contested.Receipt")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("shop_gone.models:Receipt", "there is no module shop_gone"),
        (f"{HERE}:Gone", f"the module {HERE} holds no Gone"),
        (f"{HERE}:Receipt.Gone", f"the module {HERE} holds no Receipt.Gone"),
    ],
)
def test_a_class_that_no_longer_exists_is_named_with_the_way_out(name: str, why: str) -> None:
    with pytest.raises(BadValue) as caught:
        decode(json.dumps({"$": "object", "t": name, "v": {}}))

    assert name.replace(":", ".") in str(caught.value)
    assert why in str(caught.value)
    assert f"aliases=({name.replace(':', '.')!r},)" in str(caught.value)


def test_a_module_that_fails_to_import_says_why(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "codec_broken.py").write_text("import codec_missing_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(BadValue, match=r"codec_broken.Thing cannot be loaded: No module named 'codec_missing"):
        decode('{"$":"object","t":"codec_broken:Thing","v":{}}')


def test_a_class_is_found_in_a_module_not_imported_before(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "codec_unloaded.py").write_text("import enum\nclass Kind(enum.Enum):\n    A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "codec_unloaded", raising=False)

    assert repr(decode('{"$":"enum","t":"codec_unloaded:Kind","v":"A"}')) == "<Kind.A: 1>"


# -- changed classes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "made"), [("Receipt", Receipt(3)), ("Model", Model(id=3))])
def test_unknown_fields_are_dropped_and_missing_ones_take_their_defaults(kind: str, made: Any) -> None:
    back = decode(stored(kind, {"id": 3, "removed": 1}))

    assert back == made
    assert not hasattr(back, "removed")
    assert back.notes is not decode(stored(kind, {"id": 3})).notes


def test_a_named_tuple_drops_and_fills_fields_by_name() -> None:
    assert decode(stored("Pair", {"removed": 1, "left": 2})) == Pair(2, 5)
    assert decode(stored("Pair", {"right": 1, "left": 2})) == Pair(2, 1)


@pytest.mark.parametrize(("kind", "name"), [("Strict", "amount"), ("Needy", "amount"), ("Pair", "left")])
def test_a_missing_field_without_default_names_class_and_field(kind: str, name: str) -> None:
    with pytest.raises(BadValue, match=rf"{kind} has no field {name}.*give {kind}\.{name} a default"):
        decode(stored(kind, {"id": 1}))


def test_a_dataclass_may_become_a_model_a_named_tuple_or_slotted() -> None:
    fields = {"id": 3, "left": 1}

    assert decode(stored("Receipt", fields)) == Receipt(3)
    assert decode(stored("Model", fields)) == Model(id=3)
    assert decode(stored("Model", fields))._seen == 2
    assert decode(stored("Pair", fields)) == Pair(1)
    assert decode(stored("Slotted", fields, x={"attribute": 1})) == Slotted(3)


def test_extra_fields_of_a_model_that_forbids_them_now_are_dropped() -> None:
    assert decode(stored("Model", {"id": 3}, x={"more": 1}, p={"_gone": 1})) == Model(id=3)


def test_a_renamed_enum_member_says_how_to_keep_the_old_name() -> None:
    with pytest.raises(BadValue, match=r"member 'GREEN' of .*Color, which has only RED; .* GREEN = <the new"):
        decode(json.dumps({"$": "enum", "t": f"{HERE}:Color", "v": "GREEN"}))


# -- forged texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["object", "enum", "registered", "error"])
@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "subprocess:os.system",
        "builtins:eval",
        "builtins:type",
        "builtins:object",
        "builtins:ValueError",
        "pathlib:Path",
        "shutil:rmtree",
        "functools:partial",
        "ctypes:CDLL",
        f"{HERE}:refuse",
        f"{HERE}:Unregistered",
        f"{HERE}:os",
        "os",
        "",
        ":",
        "os:",
        ":system",
        "os:system.__call__",
        "..os:system",
        "os;import sys:x",
        "os:__name__",
        7,
        None,
        ["os:system"],
    ],
)
@pytest.mark.parametrize("content", [["echo forged"], {"args": "id"}, "id", [], None, 0])
def test_a_forged_text_builds_nothing(tag: str, name: Any, content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"a text called something: {args} {kwargs}")

    monkeypatch.setattr(os, "system", called)
    monkeypatch.setattr(subprocess.Popen, "__init__", called)

    with pytest.raises(BadValue):
        decode(json.dumps([{"$": tag, "t": name, "v": content, "x": {}}]))


def test_no_constructor_of_a_class_runs(module: Module) -> None:
    def called(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a constructor ran")

    kind = type("Guarded", (), {"__annotations__": {"n": int}, "__post_init__": called, "__setattr__": called})
    pair = type("Pair", (namedtuple("Pair", "a b"),), {"__new__": called})
    module("codec_guarded", Guarded=dataclass(init=False)(kind), Pair=pair)

    assert decode('{"$":"object","t":"codec_guarded:Guarded","v":{"n":1}}').n == 1
    assert tuple(decode('{"$":"object","t":"codec_guarded:Pair","v":{"a":1,"b":2}}')) == (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        '{"$":"pickle","v":"gASVAA=="}',
        '{"$":null}',
        '{"$":["tuple"],"v":[]}',
        '{"$":"tuple"}',
        '{"$":"tuple","v":5}',
        '{"$":"set","v":[[1]]}',
        '{"$":"dict","v":[[[],1]]}',
        '{"$":"dict","v":[1]}',
        '{"$":"decimal","v":"x"}',
        '{"$":"decimal","v":[1,2]}',
        '{"$":"bytes","v":"*"}',
        '{"$":"uuid","v":"x"}',
        '{"$":"date","v":"2026-13-01"}',
        '{"$":"datetime","v":"2026-01-01T00:00:00","z":"../../etc/passwd"}',
        '{"$":"datetime","v":"2026-01-01T00:00:00","z":"Nowhere/City"}',
        '{"$":"timedelta","v":[1]}',
        '{"$":"defaultdict","v":[],"m":"eval"}',
        '{"$":"str","v":[1]}',
        '{"$":"int","v":"zz"}',
        '{"$":"object","t":"HERE:Receipt","v":[1]}',
        '{"$":"object","t":"HERE:Receipt"}',
        '{"$":"enum","t":"HERE:Color","v":1}',
        '{"$":"enum","t":"HERE:Right","v":["WRITE"]}',
        "NaN",
        "[-Infinity]",
        "",
        "{",
        "[1,]",
        "\x80\x04",
        "[" * 100_000,
        '{"$":' * 100_000,
    ],
)
def test_a_damaged_text_is_a_clear_error(text: str) -> None:
    with pytest.raises(BadValue, match="stored"):
        decode(text.replace("HERE", HERE))


@pytest.mark.parametrize("text", [None, b"1", 1, {}])
def test_only_text_is_decoded(text: Any) -> None:
    with pytest.raises(BadValue, match="takes the text that encode"):
        decode(text)


def test_an_unknown_time_zone_says_what_to_install() -> None:
    with pytest.raises(BadValue, match=r"'Nowhere/City', which this machine does not know; install the tzdata"):
        decode('{"$":"datetime","v":"2026-01-01T00:00:00","z":"Nowhere/City"}')
