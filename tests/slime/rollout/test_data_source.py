"""Tests the data source: order, epochs, the buffer, and continuation after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.errors import DataError
from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.data_state import state_path
from slime.types import Sample, SampleStatus
from tests.fakes.fixtures import ParseArgs, Rows

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from slime.arguments import Arguments


Source = RolloutDataSourceWithBuffer


def prompts(groups: list[list[Sample]]) -> list[Any]:
    return [group[0].prompt for group in groups]


def dicts(groups: list[list[Sample]]) -> list[list[dict[str, Any]]]:
    return [[sample.to_dict() for sample in group] for group in groups]


def test_a_group_has_n_samples_of_one_prompt_with_unique_indices(make_args: ParseArgs, rows: Rows) -> None:
    source = Source(make_args(rows, "--n-samples-per-prompt", "3", "--label-key", "label"))
    groups = source.get_samples(2)
    assert [[s.index for s in group] for group in groups] == [[0, 1, 2], [3, 4, 5]]
    assert [{s.group_index for s in group} for group in groups] == [{0}, {1}]
    assert [{s.label for s in group} for group in groups] == [{"1"}, {"2"}]
    groups[0][0].metadata["mine"] = 1
    assert "mine" not in groups[0][1].metadata


def test_a_request_may_span_several_epochs(make_args: ParseArgs) -> None:
    source = Source(make_args([{"input": "a"}, {"input": "b"}]))
    assert prompts(source.get_samples(5)) == ["a", "b", "a", "b", "a"]
    assert source.metrics()["rollout/data/epoch"] == 2.5


def test_every_epoch_has_a_different_order_that_depends_only_on_the_seed(
    make_args: ParseArgs, rows: Rows
) -> None:
    args = make_args(rows, "--rollout-shuffle")
    source = Source(args)
    first, second = prompts(source.get_samples(20)), prompts(source.get_samples(20))
    assert sorted(first) == sorted(second) == sorted(row["input"] for row in rows)
    assert first != second
    assert prompts(Source(args).get_samples(40)) == first + second
    other = Source(make_args(rows, "--rollout-shuffle", "--rollout-seed", "7"))
    assert prompts(other.get_samples(20)) != first


def test_returned_groups_are_issued_first(make_args: ParseArgs, rows: Rows) -> None:
    source = Source(make_args(rows))
    groups = source.get_samples(3)
    source.add_samples([groups[1]])
    assert prompts(source.get_samples(2)) == ["1+1=", "3+1="]


def test_a_group_of_another_size_is_rejected_by_the_buffer(make_args: ParseArgs, rows: Rows) -> None:
    source = Source(make_args(rows, "--n-samples-per-prompt", "2"))
    [group] = source.get_samples(1)
    with pytest.raises(DataError, match="--n-samples-per-prompt 2"):
        source.add_samples([group[:1]])


def test_the_buffer_is_saved_with_partial_answers(make_args: ParseArgs, rows: Rows) -> None:
    args = make_args(rows)
    source = Source(args)
    [group], [done] = source.get_samples(1), source.get_samples(1)
    group[0].tokens = [5, 6]
    group[0].append_response_tokens([7, 8], [-0.5, -0.25], True, 3, "ab")
    group[0].status = SampleStatus.ABORTED
    source.add_samples([group])
    source.settle(0, [done])
    source.save(0)
    again = Source(args)
    assert again.load(0)
    assert dicts(again.get_samples(1)) == dicts([group])
    assert prompts(again.get_samples(1)) == ["2+1="]


def test_groups_issued_for_a_later_batch_are_issued_again_after_a_restart(
    make_args: ParseArgs, rows: Rows
) -> None:
    args = make_args(rows)
    source = Source(args)
    first, second = source.get_samples(3), source.get_samples(3)
    source.discard_samples([first[2]])
    source.settle(0, first[:2])
    source.settle(1, second)
    source.save(0)
    again = Source(args)
    again.load(0)
    assert prompts(again.get_samples(4)) == ["3+1=", "4+1=", "5+1=", "6+1="]
    source.save(1)
    later = Source(args)
    later.load(1)
    assert prompts(later.get_samples(1)) == ["6+1="]


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=8), cut=st.integers(0, 7), data=st.data())
def test_a_resumed_run_gets_the_same_groups_as_an_uninterrupted_one(
    sizes: list[int], cut: int, data: DataObject
) -> None:
    """The groups after the saved state are equal, whatever was dropped or returned before."""
    args = RESUME["args"]
    source = Source(args)
    resumed: Source | None = None
    for rollout_id, size in enumerate(sizes):
        groups = source.get_samples(size)
        if resumed is not None:
            assert dicts(resumed.get_samples(size)) == dicts(groups)
        fates = data.draw(st.lists(st.sampled_from("tdb"), min_size=size, max_size=size))
        for place in (source, resumed):
            if place is not None:
                place.discard_samples([g for g, fate in zip(groups, fates, strict=True) if fate == "d"])
                place.settle(rollout_id, [g for g, fate in zip(groups, fates, strict=True) if fate == "t"])
                place.add_samples([g for g, fate in zip(groups, fates, strict=True) if fate == "b"])
        if rollout_id == cut:
            source.save(rollout_id)
            resumed = Source(args)
            assert resumed.load(rollout_id)


RESUME: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _arguments_for_hypothesis(make_args: ParseArgs, rows: Rows) -> None:
    RESUME["args"] = make_args(rows, "--rollout-shuffle", "--n-samples-per-prompt", "2")


def test_a_state_that_cannot_be_written_keeps_the_previous_one(make_args: ParseArgs, rows: Rows) -> None:
    args = make_args(rows)
    source = Source(args)
    source.get_samples(2)
    source.settle(0, [])
    source.save(0)
    before = state_path(args.save, 0).read_text()
    [group] = source.get_samples(1)
    group[0].metadata["what"] = object()
    source.add_samples([group])
    with pytest.raises(DataError, match="not JSON serializable; use only JSON data"):
        source.save(0)
    assert state_path(args.save, 0).read_text() == before


def test_changed_prompts_are_rejected(make_args: ParseArgs, rows: Rows) -> None:
    source = Source(make_args(rows))
    source.save(0)
    with pytest.raises(DataError, match="19 usable prompts, but had 20 when the state was saved"):
        Source(make_args(rows[:-1])).load(0)


def test_without_a_rollouts_state_the_newest_earlier_one_is_used(
    make_args: ParseArgs, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    args = make_args(rows)
    source = Source(args)
    source.settle(0, source.get_samples(2))
    source.save(0)
    again = Source(args)
    assert not again.load(2)
    assert "data state of rollout 2 not found; continuing after 0" in caplog.text
    assert prompts(again.get_samples(1)) == ["2+1="]
    assert not Source(make_args(rows, "--save", args.save + "2")).load(2)
    assert Source(args).load(-1)


def newest_first(args: Arguments, rollout_id: int, buffer: list[Any], num_samples: int) -> list[Any]:
    return [buffer.pop() for _ in range(min(num_samples, len(buffer)))]


def takes_too_many(args: Arguments, rollout_id: int, buffer: list[Any], num_samples: int) -> list[Any]:
    return list(buffer)


def test_a_buffer_filter_selects_the_reused_groups(make_args: ParseArgs, rows: Rows) -> None:
    source = Source(make_args(rows, "--buffer-filter-path", f"{__file__}:newest_first"))
    groups = source.get_samples(3)
    source.add_samples(groups)
    assert prompts(source.get_samples(2)) == ["2+1=", "1+1="]


def test_a_buffer_filter_that_keeps_groups_in_the_buffer_is_rejected(
    make_args: ParseArgs, rows: Rows
) -> None:
    source = Source(make_args(rows, "--buffer-filter-path", f"{__file__}:takes_too_many"))
    source.add_samples(source.get_samples(3))
    with pytest.raises(DataError, match="must remove at most"):
        source.get_samples(3)
