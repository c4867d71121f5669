"""What a computed name reaches, guard by guard: each alone, without source check or audit hook."""

import collections
import enum
import os
import random
import types
import typing
import weakref

import pytest

from cellblock.analysis.names import SETTLED
from cellblock.guest.guards import access
from cellblock.guest.violations import AttributeViolation, NameViolation


def library():
    """Stand in for a function of a library: its builtins are the real ones."""


#: A function as cells make them: its builtins are not the real ones.
own = types.FunctionType(library.__code__, {"__builtins__": {}})


class Holder:
    pass


class Liar(str):
    """A name that is one thing when it is judged and another when it is read."""

    __slots__ = ()

    def __str__(self):
        return "__globals__"

    def __hash__(self):
        return hash("__doc__")

    def __eq__(self, other):
        return other == "__doc__"


class Answer:
    """An object whose state holds a module under a name that is common."""

    def __init__(self, **held):
        vars(self).update(held)


def test_every_name_that_is_settled_has_what_settles_it():
    assert access._SETTLERS.keys() == SETTLED


REFUSED = {
    "a refused name": lambda: access.guarded_getattr(library, "__globals__"),
    "a dunder that nobody judged": lambda: access.guarded_getattr(library, "__unheard_of__"),
    "a name that is not what it says": lambda: access.guarded_getattr(library, Liar("__globals__")),
    "a library's name that is not what it says": lambda: access.library_getattr(
        library, Liar("__globals__")
    ),
    "the module that a builtin belongs to": lambda: access.guarded_getattr(print, "__self__"),
    "a part of a library's function": lambda: access.guarded_getattr(library, "__closure__"),
    "a module's dictionary": lambda: access.guarded_getattr(os, "__dict__"),
    "a module's dictionary by vars": lambda: access.guarded_vars(os),
    "setting a refused name": lambda: access.guarded_setattr(own, "__code__", own.__code__),
    "setting a library function's": lambda: access.guarded_setattr(library, "__defaults__", ()),
    "deleting a library function's": lambda: access.guarded_delattr(library, "__kwdefaults__"),
    "reading by the object's own method": lambda: access.guarded_getattr(
        object(), "__getattribute__"
    )("__reduce__"),
    "setting by the object's own method": lambda: access.guarded_getattr(own, "__setattr__")(
        "__code__", own.__code__
    ),
    "a text that reads it": lambda: access.guarded_getattr("{0.__globals__}", "format")(library),
    "a text that reads it in a width": lambda: access.guarded_getattr(
        "{0:{0.__globals__}}", "format"
    )(library),
    "a text that reads it of a dict": lambda: access.guarded_getattr(
        "{f.__globals__}", "format_map"
    )({"f": library}),
    "a library that takes names": lambda: access.library_getattr(library, "__globals__"),
    "a library that takes settled names": lambda: access.library_getattr(print, "__self__"),
    "a state with a refused name": lambda: access.check_state({"__globals__": 1}),
    "a state with a module": lambda: access.check_state((None, {"parser": os})),
}


@pytest.mark.parametrize("read", REFUSED.values(), ids=REFUSED)
def test_no_guard_hands_out_what_a_dot_may_not_read(read):
    with pytest.raises(AttributeViolation):
        read()


def test_what_is_refused_is_not_there_for_hasattr_and_vars_of_nothing_is_no_namespace():
    assert not access.guarded_hasattr(library, "__globals__")
    assert access.guarded_getattr(library, "__globals__", None) is None
    with pytest.raises(NameViolation):
        access.guarded_vars()


def test_positive_control_what_is_the_cells_own_is_read_and_changed():
    held = Holder()
    access.guarded_setattr(held, "a", 1)
    assert access.guarded_getattr(held, "a") == access.guarded_vars(held)["a"] == 1
    assert access.guarded_getattr(own, "__defaults__") is None
    access.guarded_setattr(own, "__defaults__", None)
    assert access.guarded_getattr(held, "__getattribute__")("a") == 1
    assert access.guarded_getattr("{0.a:>{0.a}}", "format")(held) == "1"
    assert access.library_getattr(held, "__unheard_of__", 2) == 2
    assert access.check_state((None, {"a": os.sep})) == (None, {"a": os.sep})
    access.guarded_delattr(held, "a")
    assert not access.guarded_hasattr(held, "a")


def test_a_name_is_judged_and_read_as_one_text():
    assert type(access.text_of(Liar("__globals__"))) is str
    with pytest.raises(AttributeViolation):
        access.check_name(Liar("__globals__"))


def test_a_classs_dictionary_is_shown_without_what_no_cell_may_hold():
    class Own:
        __getattribute__ = own

    shown = access.guarded_vars(Own)
    assert shown["__getattribute__"] is own
    assert "__doc__" in shown
    Own.__getattribute__ = object.__getattribute__
    assert "__getattribute__" not in access.guarded_vars(Own)
    assert "__getattribute__" not in access.guarded_getattr(object, "__dict__")


class OwnError(AttributeError):
    """An error of a cell's class, which reads what the library's holds."""

    def read(self):
        return access.guarded_getattr(super(), "obj")


ERROR = AttributeError(name="a", obj=library)
READ = {
    "a dot": lambda: access.read(ERROR, "obj"),
    "getattr": lambda: access.guarded_getattr(ERROR, "obj"),
    "the object's own method": lambda: access.guarded_getattr(ERROR, "__getattribute__")("obj"),
    "super": lambda: OwnError(obj=library).read(),
}


@pytest.mark.parametrize("way", READ)
def test_no_error_hands_out_what_the_library_could_not_read_from(way):
    assert READ[way]() is None


Alias = type(typing.List[int])  # noqa: UP006 - typing's own kind of alias


class OwnAlias(Alias, _root=True):
    """An alias of a cell's class, which leaves what it does not find to the library."""

    def __init__(self, origin, of):
        super().__init__(origin, of, name="a")
        vars(self)["obj"] = "own"

    @property
    def obj(self):
        raise AttributeError("obj")


class Calling(AttributeError):
    def __call__(self):
        pass


CALLING = Calling(obj=library)
FORWARDED = {
    "a proxy": lambda: weakref.proxy(CALLING),
    "a method": lambda: types.MethodType(CALLING, 0),
    "an alias": lambda: types.GenericAlias(ERROR, int),
    "an alias of an alias": lambda: types.GenericAlias(types.GenericAlias(ERROR, int), int),
    "an alias of typing's": lambda: Alias(ERROR, (int,), name="a"),
    "an alias of a cell's class": lambda: OwnAlias(ERROR, (int,)),
    "super of a proxy": lambda: super(object, weakref.proxy(CALLING)),
}


@pytest.mark.parametrize("what", FORWARDED)
def test_nothing_reads_obj_in_the_place_of_another_object(what):
    forwards = FORWARDED[what]()
    assert not access.guarded_hasattr(forwards, "obj")
    with pytest.raises(AttributeError):
        access.read(forwards, "obj")


def test_no_method_of_a_library_reads_obj_of_another_object():
    posing = Answer(__origin__=ERROR)
    read_for = access.guarded_getattr(Alias, "__getattr__")
    with pytest.raises(AttributeError):
        read_for(posing, "obj")
    vars(posing)["obj"] = "own"
    assert read_for(posing, "obj") == "own"


def test_what_an_object_its_class_or_a_cells_method_has_as_obj_is_read():
    class Base:
        @property
        def obj(self):
            asked.append(self)
            return "property"

    class Derived(Base):
        @property
        def obj(self):
            return access.read(super(), "obj")

    class Slots:
        __slots__ = ("obj",)

    class Kind(enum.Enum):
        obj = 1

    asked = []
    own_getattr = types.FunctionType((lambda _, name: name).__code__, {"__builtins__": {}})
    made = type("Made", (), {"__getattr__": own_getattr})()
    taken = type("Taken", (), {"obj": 1, "__getattribute__": own_getattr})()
    slots = Slots()
    slots.obj = "slot"
    fields = collections.namedtuple("Fields", "obj")("field")  # noqa: PYI024 - the old way
    held = (Answer(obj=library), Base(), Derived(), slots, fields, made, taken, memoryview(b"x"))
    found = [access.read(each, "obj") for each in held]
    assert found == [library, "property", "property", "slot", "field", "obj", "obj", b"x"]
    assert len(asked) == 2
    assert access.read(Kind, "obj") is Kind.obj
    assert type(access.read(Base, "obj")) is property
    with pytest.raises(AttributeViolation):
        access.read(AttributeError, "obj")


def test_a_module_is_no_objects_parser():
    assert access.guarded_getattr(Answer(parser=random), "parser") is None
    assert access.guarded_getattr(Answer(parser="html"), "parser") == "html"


def test_names_that_were_judged_are_no_memory_without_bound(monkeypatch):
    monkeypatch.setattr(access, "judged_names", {})
    for number in range(access._MOST + 100):
        access.guarded_hasattr(library, f"name_{number}")
    assert len(access.judged_names) <= access._MOST


def test_a_frozen_class_takes_no_method_of_anybodys():
    kind = type("Library", (), {"__module__": "json"})
    kind.get = library  # positive control
    access.freeze(kind)
    with pytest.raises(TypeError, match="immutable type"):
        kind.get = library
