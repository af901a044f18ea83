from __future__ import annotations

import pytest

from slime.errors import DataError
from slime.types import Sample, SampleStatus


def test_a_sample_round_trips_through_plain_data() -> None:
    sample = Sample(
        index="a",
        tokens=[1, 2, 3, 0],
        response_length=2,
        reward={"score": -1},
        version_spans=[(3, 0, 1), (4, 1, 2)],
    )
    assert Sample.from_dict(sample.to_dict()) == sample
    assert sample.versions == {3, 4}


def test_status_is_read_from_its_name() -> None:
    assert Sample.from_dict({"status": "truncated"}).status is SampleStatus.TRUNCATED


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"response_length": 4}, "response_length 4"),
        ({"loss_mask": [1]}, "loss_mask has 1 entries"),
        ({"loss_mask": [1, 2]}, "only 0 and 1"),
        ({"rollout_log_probs": [0.0]}, "rollout_log_probs"),
        ({"teacher_log_probs": [0.0]}, "teacher_log_probs"),
        ({"teacher_topk_indices": [[1], [2]]}, "must be given together"),
        ({"temperature": 0.0}, "temperature"),
        ({"version_spans": [(1, 0, 2), (2, 1, 2)]}, "overlaps"),
        ({"version_spans": [(1, 0, 3)]}, "exceeds the response"),
        ({"no_such_field": 1}, "unknown fields"),
        ({"loss_weight": -0.5}, "loss_weight must be a finite number of 0 or more"),
        ({"loss_weight": float("inf")}, "loss_weight must be a finite number of 0 or more"),
        (
            {"divergence": "sideways", "teacher_tokens_candidates": [[4, 2, 3]]},
            "unknown divergence 'sideways'; choose forward",
        ),
        ({"end_weight": 1.0}, "end_weight 1.0 needs a divergence"),
        ({"end_weight": float("nan")}, "end_weight must be a finite number, got nan"),
        ({"divergence": "forward"}, "exactly one entry in teacher_tokens_candidates, got 0"),
        (
            {"divergence": "forward", "teacher_tokens_candidates": [[4, 2, 3], [5, 2, 3]]},
            "exactly one entry in teacher_tokens_candidates, got 2",
        ),
    ],
)
def test_inconsistent_samples_are_rejected_with_the_reason(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        Sample.from_dict({"index": 7, "tokens": [1, 2, 3], "response_length": 2} | fields)


def test_teacher_fields_may_exist_for_some_samples_only() -> None:
    with_teacher = Sample(tokens=[1, 2], response_length=1, teacher_log_probs=[-0.5])
    without = Sample(tokens=[1, 2], response_length=1)
    assert with_teacher.teacher_log_probs == [-0.5]
    assert without.teacher_log_probs is None


def test_appended_tool_output_is_masked_and_has_no_log_probs() -> None:
    sample = Sample(tokens=[5, 6])
    sample.append_response_tokens([7, 8], [-0.1, -0.2], version=3, text="ab")
    sample.append_response_tokens([9], trainable=False, text="tool")
    sample.append_response_tokens([1], [-0.3], version=4, text="c")
    sample.append_response_tokens([2], [-0.4], version=4, text="d")
    sample.validate()
    assert sample.tokens == [5, 6, 7, 8, 9, 1, 2]
    assert sample.mask == [1, 1, 0, 1, 1]
    assert sample.rollout_log_probs == [-0.1, -0.2, 0.0, -0.3, -0.4]
    assert sample.version_spans == [(3, 0, 2), (4, 3, 5)]
    assert sample.response == "abtoolcd"


def test_trainable_tokens_without_log_probs_are_refused() -> None:
    with pytest.raises(DataError, match="need as many log-probs"):
        Sample(tokens=[1]).append_response_tokens([2])
    with pytest.raises(DataError, match="have no log-probs"):
        Sample(tokens=[1]).append_response_tokens([2], [-1.0], trainable=False)


def test_appending_never_adds_log_probs_for_earlier_tokens() -> None:
    with pytest.raises(DataError, match="cannot append"):
        Sample(tokens=[1, 2], response_length=1).append_response_tokens([3], [-1.0])


def test_a_removed_sample_has_no_trained_tokens() -> None:
    sample = Sample(tokens=[1, 2], response_length=1, remove_sample=True)
    assert sample.effective_response_length == 0


@pytest.mark.parametrize("reward", [None, {"a": 1.0}, float("nan"), True, {"score": "good"}])
def test_a_reward_that_is_not_a_number_is_refused(reward: object) -> None:
    with pytest.raises(DataError, match="reward"):
        Sample(reward=reward).get_reward_value("score")  # type: ignore[arg-type]


def test_the_reward_key_selects_a_reward() -> None:
    assert Sample(reward={"score": 1, "other": 0.0}).get_reward_value("score") == 1.0
    assert Sample(reward=-1).get_reward_value("score") == -1.0
