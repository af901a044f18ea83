"""The benchmark of several people counts sessions until a person's wish is learned."""

from __future__ import annotations

from claw_lab.benchmarks.learning.adapters_of_people import Person, parse


def test_a_wish_is_learned_when_two_looks_in_a_row_reach_the_target() -> None:
    person = Person("person0", "student")
    for sessions, share in ((0, 0.1), (4, 0.9), (8, 0.7), (12, 0.8), (16, 0.81), (20, 0.2)):
        person.sessions = sessions
        person.note(share)
    assert person.reached == 16 and person.shares[1] == 0.9


def test_people_have_tastes_that_exist() -> None:
    options = parse(["--people", "student", "dasher", "--kinds", "adapters"])
    assert options.people == ["student", "dasher"] and options.kinds == ["adapters"]
