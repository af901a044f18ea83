"""The teacher in the trainer: selects its model and runs it on hinted prompts followed by the student's
response.

Every hint of a sample gives one sequence of `teacher_tokens_candidates`. The response ids follow the hinted
prompt, so position t under each hint teaches response token t. Logits are computed only at response
positions, at the student's temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from transformers import AutoTokenizer

from slime.errors import ConfigError
from slime.losses import Candidates, Distribution, TopKTargets, topk_targets
from slime.losses.teacher_topk import OUTSIDE
from slime.training.core.batch import TrainBatch
from slime.training.core.following import LIKELY_IDS
from slime.training.core.kept_rows import KeptRows
from slime.training.core.metrics import TeacherDistance
from slime.training.core.model import TrainedModel, log_probs_of
from slime.training.core.objective import loss_spec
from slime.training.core.packing import PackedBatch, pack
from slime.training.core.reference import Reference
from slime.training.core.step import OnDistribution, Teach
from slime.training.schedule import MicroBatch, Step
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments


class TeacherSequence(NamedTuple):
    """One hint of one sample.

    It holds the sample's position in the micro-batch, the index of the hint, the teacher's sequence, and the
    sample with the same response after its plain prompt.
    """

    owner: int
    hint: int
    sample: Sample
    plain: Sample


class Teacher:
    """Computes a teacher's log-probs of the trained response tokens of a micro-batch.

    Args:
        model: None if the samples contain the teacher's log-probs (--teacher-source inference).
        computing: context manager in which the model computes the teacher's output.
        is_fixed: the teacher's weights never change, so outputs are cached for repeated samples.
    """

    def __init__(
        self,
        args: Arguments,
        rank: int,
        model: TrainedModel | None,
        computing: Callable[[], AbstractContextManager[None]] = nullcontext,
        is_fixed: bool = False,
    ) -> None:
        self.args, self.rank = args, rank
        self.model, self.computing = model, computing
        self.kept = KeptRows(rank) if is_fixed else None
        spec = loss_spec(args)
        self.over_topk, self.without_hint = spec.teacher == "topk", spec.without_hint
        self.shortest = args.hint_selection == "shortest"
        self.distance = TeacherDistance()

    def read(self, step: Step, data: TrainBatch, device: torch.device) -> None:
        """Adds the teacher's log-probs of one step's sampled tokens, if the loss needs them. Every rank must
        call this."""
        if not self.over_topk and self.model is not None:
            data.teacher_log_probs = (data.teacher_log_probs or {}) | self.sampled(step, data.samples, device)

    def lead(self, number: int, step: Step, data: TrainBatch, device: torch.device) -> None:
        """Stores the teacher's likely ids for a step's distillation-only samples. Every rank must call this."""
        for part in step.others():
            data.followed[number, part] = self.followed(step, part, data.samples, device)

    @torch.no_grad()
    def followed(
        self, step: Step, number: int, samples: Sequence[Sample], device: torch.device
    ) -> Candidates:
        """Returns the teacher's likely ids for the T tokens of this rank's micro-batch `number`, as one hint."""
        assert self.model is not None
        k = min(max(self.args.distill_topk or 0, LIKELY_IDS), self.model.vocabulary)

        def ask(micro_batches: Sequence[MicroBatch]) -> Candidates:
            packed = self._pack([samples[i] for i in micro_batches[self.rank]], device)
            return self._candidates(micro_batches, samples, packed, None, k)

        everywhere = step.numbered(number)
        return ask(everywhere) if self.kept is None else self.kept.read(everywhere, samples, ask, device)

    def keeping(self, number: int, step: Step, data: TrainBatch) -> OnDistribution | None:
        """Returns a callback that stores distillation targets during the pass for old log-probs; None if not
        needed."""
        if not self.over_topk:
            return None

        def keep(part: int, packed: PackedBatch, student: Distribution) -> None:
            data.targets[number, part] = self.targets(step, part, data.samples, packed, student)

        return keep

    def teaching(self, number: int, step: Step, data: TrainBatch) -> Teach | None:
        """Returns a function that returns the teacher's stored targets.

        In the first step, it runs the teacher between forward and backward instead, so the policy needs no
        additional pass.
        """
        if not self.over_topk:
            return None

        def teach(part: int, packed: PackedBatch, student: Distribution) -> TopKTargets:
            kept = data.targets.get((number, part))
            return kept or self.targets(step, part, data.samples, packed, student)

        return teach

    def sampled(self, step: Step, samples: Sequence[Sample], device: torch.device) -> dict[int, list[float]]:
        """Returns log-probs of this rank's trained tokens under the shortest hint, by position. Every rank
        must call this.

        Samples without a hint are omitted.
        """
        by_sample: dict[int, list[float]] = {}
        rounds = [
            (micro_batch, sequences)
            for number, micro_batch in enumerate(step.plain(self.rank))
            for sequences in self._rounds(step.numbered(number), samples)
        ]
        packs = [self._pack([one.sample for one in sequences], device) for _, sequences in rounds]
        log_probs = self._log_probs([sequences for _, sequences in rounds], packs)
        for (micro_batch, sequences), packed, values in zip(rounds, packs, log_probs, strict=True):
            parts = torch.split(values, list(packed.counts) or [1])
            for one, part in zip(sequences, parts, strict=False):
                by_sample[micro_batch[one.owner]] = part.tolist()
        return by_sample

    @torch.no_grad()
    def _log_probs(
        self, rounds: Sequence[Sequence[TeacherSequence]], packs: Sequence[PackedBatch]
    ) -> list[Tensor]:
        """Returns the teacher's log-probs of every pack's targets, [T] each."""
        assert self.model is not None
        if self.args.teacher_guidance != 1:
            pairs = zip(rounds, packs, strict=True)
            return [self._ask(part, packed).log_probs(packed.targets) for part, packed in pairs]
        self.model.eval()
        with self.computing():
            log_probs = log_probs_of(self.model, packs)
        self.model.train()
        return log_probs

    @torch.no_grad()
    def targets(
        self,
        step: Step,
        number: int,
        samples: Sequence[Sample],
        packed: PackedBatch,
        student: Distribution,
    ) -> TopKTargets:
        """Returns the distillation targets of the T tokens of this rank's micro-batch `number`. Every rank
        must call this.

        Args:
            student: distribution of `packed` under the policy before the update.
        """
        args, own = self.args, [samples[i] for i in step.ranks[self.rank][number]]
        k, mode = args.distill_topk, args.distill_subset_mode
        assert mode is not None
        if self.model is None:
            candidates = given_topk(own, packed, k)
        else:
            asked = student.topk(k)[1] if mode == "student" else None
            candidates = self._candidates(step.numbered(number), samples, packed, asked, k)
        targets = topk_targets(student, candidates, k, mode, args.hint_selection, hint_groups(own, packed))
        if own:
            self.distance.add(targets, packed.spread([is_own_hinted(sample) for sample in own]).bool())
        return targets

    def _candidates(
        self,
        micro_batches: Sequence[MicroBatch],
        samples: Sequence[Sample],
        packed: PackedBatch,
        asked: Tensor | None,
        k: int,
    ) -> Candidates:
        """Runs the teacher once for every hint.

        Returns log-probs of the ids `asked` [T, K], the teacher's own likely ids, or both.

        Args:
            micro_batches: micro-batches of all ranks; this rank's is `packed`.
        """
        length, device = len(packed.targets), packed.targets.device
        ends = [0, *accumulate(packed.counts)]
        hints = max([1, *(len(self.prompts(samples[i])) for i in micro_batches[self.rank])])
        present = torch.zeros(hints, length, dtype=torch.bool, device=device)
        log_probs = torch.zeros(hints, length, k, device=device)
        own_ids = torch.zeros(hints, length, k, dtype=torch.long, device=device)
        for sequences, teacher_pack, dist in self._passes(micro_batches, samples, device):
            if not sequences:
                continue
            rows = torch.cat(
                [torch.arange(ends[s.owner], ends[s.owner + 1], device=device) for s in sequences]
            )
            of_hint = teacher_pack.spread([s.hint for s in sequences]).long()
            present[of_hint, rows] = True
            if asked is None or not self.shortest:
                own, own_ids[of_hint, rows] = dist.topk(k)
            log_probs[of_hint, rows] = own if asked is None else dist.log_probs(asked[rows])
        knows_own = asked is None or not self.shortest
        return Candidates(present, log_probs, own_ids if knows_own else None, asked)

    @torch.no_grad()
    def _passes(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample], device: torch.device
    ) -> Iterator[tuple[list[TeacherSequence], PackedBatch, Distribution]]:
        """Yields packs of this rank's sequences with the teacher's distribution for each.

        With --teacher-guidance, a second forward pass reads the plain prompts, unless the teachers of all
        ranks read only these.
        """
        everywhere = [samples[i] for micro_batch in micro_batches for i in micro_batch]
        is_guided = any(tokens != sample.tokens for sample in everywhere for tokens in self.prompts(sample))
        for part in self._rounds(micro_batches, samples):
            packed = self._pack([one.sample for one in part], device)
            yield part, packed, self._ask(part, packed, is_guided)

    def _ask(
        self, sequences: Sequence[TeacherSequence], packed: PackedBatch, is_guided: bool = True
    ) -> Distribution:
        """Returns the teacher's distribution for a pack of these sequences."""
        model = self.model
        assert model is not None
        model.eval()
        with self.computing():
            dist = model.distribution(packed)
            if is_guided and self.args.teacher_guidance != 1:
                plain = self._pack([one.plain for one in sequences], packed.targets.device)
                dist = dist.guided(model.distribution(plain), self.args.teacher_guidance)
        model.train()
        return dist

    def _pack(self, samples: Sequence[Sample], device: torch.device) -> PackedBatch:
        return pack(samples, device, merge=self.args.merge_prefixes)

    def _rounds(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample]
    ) -> list[list[TeacherSequence]]:
        """Splits this rank's sequences into forward passes; every rank gets the same number."""
        packs = [self._packs(micro_batch, samples) for micro_batch in micro_batches]
        own_packs = packs[self.rank]
        return [*own_packs, *([] for _ in range(max(map(len, packs)) - len(own_packs)))]

    def _packs(self, micro_batch: MicroBatch, samples: Sequence[Sample]) -> list[list[TeacherSequence]]:
        """Returns the sequences of a micro-batch in order, split at the micro-batch limits."""
        args = self.args
        parts: list[list[TeacherSequence]] = []
        tokens = 0
        for one in self._sequences(micro_batch, samples):
            follows = args.merge_prefixes and parts and parts[-1][-1].owner == one.owner
            length = one.sample.response_length if follows else len(one.sample.tokens)
            full = (
                tokens + length > args.max_tokens_per_gpu
                if args.use_dynamic_batch_size
                else bool(parts) and len(parts[-1]) >= (args.micro_batch_size or 1)
            )
            if full or not parts:
                parts.append([])
                tokens, length = 0, len(one.sample.tokens)
            parts[-1].append(one)
            tokens += length
        return parts

    def _sequences(self, micro_batch: MicroBatch, samples: Sequence[Sample]) -> Iterator[TeacherSequence]:
        """Yields the teacher's sequences.

        The common prefix of a sample's hinted prompts counts as their prompt, so that packing can share it.
        """
        for owner, i in enumerate(micro_batch):
            sample = samples[i]
            prompts = self.prompts(sample)
            common = _common_prefix([tokens[: len(tokens) - sample.response_length] for tokens in prompts])
            for hint, tokens in enumerate(prompts):
                own = len(tokens) - common if common else sample.response_length
                read = Sample(
                    index=sample.index,
                    tokens=tokens,
                    response_length=own,
                    loss_mask=[0] * (own - sample.response_length) + sample.mask,
                    temperature=sample.temperature,
                    images=sample.images if tokens == sample.tokens else [],
                )
                yield TeacherSequence(owner, hint, read, sample)

    def prompts(self, sample: Sample) -> list[list[int]]:
        """Returns the teacher's prompts for a sample: one per used hint, or the plain prompt if the loss
        needs no hint."""
        candidates = sample.teacher_tokens_candidates or []
        if not candidates and self.without_hint == "plain":
            return [sample.tokens]
        return candidates[: 1 if self.shortest else self.args.hint_m]


def is_own_hinted(sample: Sample) -> bool:
    """Returns whether a sample is from the batch itself (not a companion) and has a hint."""
    return not sample.companion and sample.is_hinted


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Returns the number of equal tokens at the start of all prompts."""
    columns = zip(*prompts, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def given_topk(samples: Sequence[Sample], packed: PackedBatch, k: int) -> Candidates:
    """Returns the candidates stored in the samples: the K most likely ids of their single teacher."""
    length, device = len(packed.targets), packed.targets.device
    present = torch.zeros(1, length, dtype=torch.bool, device=device)
    log_probs = torch.zeros(1, length, k, device=device)
    ids = torch.zeros(1, length, k, dtype=torch.long, device=device)
    ends = [0, *accumulate(packed.counts)]
    for (start, end), sample in zip(pairwise(ends), samples, strict=True):
        if sample.teacher_topk_indices is None or sample.teacher_topk_log_probs is None:
            continue
        kept = [t for t, trained in enumerate(sample.mask) if trained]
        present[0, start:end] = True
        ids[0, start:end] = torch.tensor([sample.teacher_topk_indices[t][:k] for t in kept], device=device)
        rows = [sample.teacher_topk_log_probs[t][:k] for t in kept]
        log_probs[0, start:end] = torch.tensor(rows, device=device)
    return Candidates(present, log_probs, ids)


def hint_groups(samples: Sequence[Sample], packed: PackedBatch) -> Tensor:
    """Returns group indices [T]; tokens of one group get the same hint. A group is a sample, or one step of
    an agent."""
    groups: list[int] = []
    number = 0
    for sample in samples:
        spans = (sample.metadata.get("step_wise") or {}).get("step_token_spans")
        wide = [OUTSIDE if spans else number] * sample.response_length
        for start, end in spans or ():
            wide[start:end] = [number] * len(wide[start:end])
            number += 1
        number += 0 if spans else 1
        groups += [group for group, trained in zip(wide, sample.mask, strict=True) if trained]
    return torch.tensor(groups if samples else [0], device=packed.targets.device)


TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def make_teacher(
    args: Arguments,
    replica: int,
    policy: TrainedModel,
    reference: Reference | None,
    first: str,
    load: Callable[[str], TrainedModel],
) -> Teacher:
    """Returns the teacher that the flags select.

    Args:
        replica: index of this rank's replica, which selects its samples of a step.
        policy: the trained model.
        reference: the KL term's reference; its model is shared if it is the same model and never changes.
        first: folder of the initial weights.
        load: loads the model in a folder, sharded like the policy.

    Raises:
        ConfigError: the model cannot be loaded, or has another vocabulary.
    """
    if args.teacher_source != "trainer":
        return Teacher(args, replica, None)
    if args.teacher_model == "self":
        return Teacher(args, replica, policy)
    base = args.teacher_model == "base"
    folder = first if base else str(args.teacher_model)
    if args.use_lora and Path(folder).resolve() == Path(first).resolve():
        return Teacher(args, replica, policy, policy.without_adapters, is_fixed=True)
    if reference is not None and reference.is_always(folder):
        return Teacher(args, replica, reference.model, is_fixed=True)
    if not base:
        check_tokenizer(folder, args.hf_checkpoint)
    model = load(folder)
    model.requires_grad_(False)
    if model.vocabulary != policy.vocabulary:
        raise ConfigError(
            f"the teacher in {folder} has {model.vocabulary} tokens, but the student has "
            f"{policy.vocabulary}; use a teacher with the same vocabulary"
        )
    return Teacher(args, replica, model, is_fixed=True)


def check_tokenizer(teacher: str, student: str) -> None:
    """Raises ConfigError if the two folders' tokenizers map an id to different tokens."""
    has = [any((Path(folder) / name).is_file() for name in TOKENIZER_FILES) for folder in (teacher, student)]
    if not all(has):
        return
    vocabularies = [_vocabulary(folder) for folder in (teacher, student)]
    different = sorted(set(vocabularies[0].items()) ^ set(vocabularies[1].items()), key=lambda pair: pair[1])
    if different:
        token, number = different[0]
        raise ConfigError(
            f"--teacher-model {teacher} has another tokenizer than {student}: id {number} "
            f"({token!r}) differs; choose a teacher with the student's vocabulary"
        )


def _vocabulary(folder: str) -> dict[str, int]:
    ids: dict[str, int] = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    ).get_vocab()
    return ids
