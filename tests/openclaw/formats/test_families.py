"""Answers of every model family are streamed, and the deltas add up to the result of the family's parser."""

from __future__ import annotations

import json
from array import array
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as CoreTokenizer

from openclaw.common.messages import prefix_keys
from openclaw.errors import ClientError, ConfigError
from openclaw.formats.deltas import CallArguments, CallStart, TextDelta
from openclaw.formats.families import BY_MODEL_TYPE
from openclaw.formats.rendering import ChatFormat, KnownHeads, ModelFolder
from openclaw.formats.tokenizer import Tokenizer

QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
QWEN += ["<tool_response>", "</tool_response>"]
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"]
GLM += ["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"]
GLM += ["</arg_value>"]
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"]
LLAMA += ["<|eom_id|>", "<|python_tag|>"]
DEEPSEEK = ["begin▁of▁sentence", "end▁of▁sentence", "User", "Assistant", "tool▁calls▁begin", "tool▁calls▁end"]
DEEPSEEK += [
    "tool▁call▁begin",
    "tool▁call▁end",
    "tool▁outputs▁begin",
    "tool▁outputs▁end",
    "tool▁output▁begin",
]
DEEPSEEK = [f"<｜{name}｜>" for name in [*DEEPSEEK, "tool▁output▁end", "tool▁sep"]] + ["<think>", "</think>"]

GLM_CALL = "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>"
TAGGED_CALL = "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
DEEPSEEK_CALL = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n"
    '{"path": "a.txt"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
FAMILIES: dict[str, tuple[str, list[str], str]] = {
    "qwen3": ("qwen3", QWEN, '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'),
    "qwen3.5": ("qwen3_5", QWEN + VISION, TAGGED_CALL),
    "qwen3.6": ("qwen3_5", QWEN + VISION, TAGGED_CALL),
    "llama-3": ("llama", LLAMA, '{"name": "read", "parameters": {"path": "a.txt"}}'),
    "glm-4.5": ("glm4_moe", GLM, GLM_CALL),
    "deepseek-v3": ("deepseek_v3", DEEPSEEK, DEEPSEEK_CALL),
    "nemotron-3": ("nemotron_h", [*QWEN, "<image>"], TAGGED_CALL),
}
FOLDERS = {"qwen3.6": "Qwen3.6-35B-A3B"}
"""Folder names that indicate a family."""
WHOLE = ("llama-3", "glm-4.5", "deepseek-v3")
"""Families whose answer is parsed as a whole each time; invalid calls become text at the end."""
TOOL = {
    "type": "function",
    "function": {"name": "read", "parameters": {"properties": {"path": {"type": "string"}}}},
}
TEXTS = ["hello", " there", "\n", "\n\n", "  ", "你好", "🦀", "{", "}", "<", "</", '{"name": "x"}', "42."]


@cache
def family(name: str) -> ChatFormat:
    """Returns a byte-level tokenizer without merges, with the special tokens of a family."""
    with TemporaryDirectory() as place:
        folder = Path(place) / FOLDERS.get(name, name)
        write_family(name, folder)
        return ChatFormat(ModelFolder.read(folder), Tokenizer(folder))


def write_family(name: str, folder: Path) -> None:
    """Writes the files of such a model that a gateway reads."""
    folder.mkdir()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = CoreTokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    model_type, special, _ = FAMILIES[name]
    core.add_tokens([AddedToken(token, normalized=False, special=False) for token in special])
    core.save(str(folder / "tokenizer.json"))
    ends = [token for token in special if token in ("<|eot_id|>", "<｜end▁of▁sentence｜>", "<|im_end|>")]
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": (ends or ["<|endoftext|>"])[0]}))
    config = {"model_type": model_type, "text_config": {"max_position_embeddings": 4096}}
    (folder / "config.json").write_text(json.dumps(config))


def parsed(name: str, pieces: list[list[int]], prompt: list[int]) -> tuple[str, str, list[Any]]:
    parser = family(name).parser(True)
    parser.begin(prompt, [TOOL])
    texts = {"content": "", "reasoning_content": ""}
    calls: list[list[str]] = []
    for delta in [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish():
        if isinstance(delta, TextDelta):
            texts[delta.kind] += delta.text
        elif isinstance(delta, CallStart):
            calls.append([delta.name, ""])
        elif isinstance(delta, CallArguments):
            calls[-1][1] += delta.text
    return texts["reasoning_content"], texts["content"], [(name, json.loads(text)) for name, text in calls]


def expected(name: str, ids: list[int], prompt: list[int]) -> tuple[str, str, list[Any]]:
    stops = family(name).stop_ids
    end = next((at for at, token in enumerate(ids) if token in stops), len(ids))
    whole = family(name)._renderer(True).parse_response(ids[:end], tools=[TOOL], prompt_ids=prompt)
    calls = [(call.name, call.arguments) for call in whole.tool_calls if is_sound(call)]
    unsound = [call.raw for call in whole.tool_calls if not is_sound(call)]
    content = (
        "".join([whole.content or "", *unsound]) if name in WHOLE else content_of(name, whole, ids[:end])
    )
    return (whole.reasoning_content or "").strip(), content, calls


def is_sound(call: Any) -> bool:
    return call.status == "ok" and call.name == "read" and isinstance(call.arguments, dict)


def content_of(name: str, whole: Any, ids: list[int]) -> str:
    """Invalid calls, and the text after them up to a valid one, are text. One block is one call here."""
    content, shows, end = whole.content or "", True, None
    blocks: dict[tuple[int, int], list[Any]] = {}
    for call in whole.tool_calls:
        blocks.setdefault(call.token_span, []).append(call)
    decode = family(name).tokenizer.decode
    for (start, after), calls in blocks.items():
        content += decode(ids[end:start]) if shows and end is not None else ""
        shows, end = not all(map(is_sound, calls)), after
        content += decode(ids[start:end]) if shows else ""
    return content + (decode(ids[end:]) if shows and end is not None else "")


def without_space(answer: tuple[str, str, list[Any]]) -> tuple[str, str, list[Any]]:
    """Removes white space around calls, whose trimming depends on whether the call is valid."""
    return answer[0], "".join(answer[1].split()), answer[2]


def prompt_of(name: str) -> list[int]:
    return family(name).render([{"role": "user", "content": "hi"}], [TOOL], True)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_split_of_an_answer_gives_the_result_of_the_familys_parser(
    name: str, data: st.DataObject
) -> None:
    _, special, call = FAMILIES[name]
    # this token is the prompt's; generation starts after it
    special = [token for token in special if token != "<|end_header_id|>"]
    piece = st.one_of(st.sampled_from([*special, call]), st.sampled_from(TEXTS), st.text(max_size=3))
    ids = family(name).tokenizer.encode("".join(data.draw(st.lists(piece, max_size=10))))
    raw = data.draw(st.lists(st.integers(0, 255), max_size=3))
    ids = ids[: len(ids) // 2] + raw + ids[len(ids) // 2 :]
    edges = sorted({cut % (len(ids) + 1) for cut in data.draw(st.lists(st.integers(0, 999), max_size=6))})
    pieces = [ids[start:end] for start, end in pairwise([0, *edges, len(ids)])]
    prompt = prompt_of(name) if data.draw(st.booleans()) else []
    whole = without_space(expected(name, ids, prompt))
    assert without_space(parsed(name, pieces, prompt)) == whole
    assert parsed(name, [[token] for token in ids], prompt) == parsed(name, pieces, prompt)


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "qwen3.6"])
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=20)), min_size=4), thinks=st.booleans()
)
def test_prompts_joined_from_cached_texts_have_the_renderers_ids(
    name: str, texts: list[str], thinks: bool
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    messages: list[dict[str, Any]] = [{"role": "system", "content": texts[0]}]
    for index, text in enumerate(texts[1:]):
        role = ("user", "assistant", "tool")[index % 3]
        calls = {"tool_calls": [call], "reasoning_content": texts[0]} if role == "assistant" else {}
        messages.append({"role": role, "content": text, **calls})
    for tools in (None, [TOOL]):
        direct = family(name)._renderer(thinks).render_ids(messages, tools=tools, add_generation_prompt=True)
        assert family(name).render(messages, tools, thinks) == list(direct)


ASKED = st.sampled_from(["hi", " and?", "<tool_response>x</tool_response>", "<tool_response>y", ""])
ANSWERED = st.sampled_from(["no", "<think>a</think>b", "x</think>", " \n", "<think>", ""])
CALLS = st.sampled_from(
    [None, [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]]
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": ASKED}),
    st.fixed_dictionaries({"role": st.sampled_from(["tool", "tool", "system"]), "content": ASKED}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": ANSWERED,
            "tool_calls": CALLS,
            "reasoning_content": st.sampled_from([None, "so"]),
        }
    ),
)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(
    history=st.lists(MESSAGE, max_size=6),
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.lists(MESSAGE, max_size=4), st.lists(MESSAGE, max_size=2)),
        min_size=1,
        max_size=5,
    ),
    tools=st.sampled_from([None, [TOOL]]),
    thinks=st.booleans(),
)
def test_a_repeated_history_gets_the_same_ids(
    name: str, history: list[Any], steps: list[tuple[int, Any, Any]], tools: list[Any] | None, thinks: bool
) -> None:
    """A conversation continues, and sometimes its last messages change."""
    form = family(name)
    for cut, more, after in steps:
        history = [*history[: len(history) - cut], *more]
        asked = [*history, {"role": "user", "content": "now?"}, *after]
        head = form.known_head(asked, tools, thinks, prefix_keys(asked))
        assert rendered(form, asked, tools, thinks, head) == rendered(form, asked, tools, thinks, None)


def rendered(form: ChatFormat, messages: list[Any], tools: Any, thinks: bool, head: Any) -> list[int] | str:
    try:
        return form.render(messages, tools, thinks, head=head)
    except ClientError as error:
        return str(error)


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "qwen3.6"])
def test_the_previous_turns_start_is_found_although_its_last_text_moved(name: str) -> None:
    form, moving = family(name), {"role": "user", "content": "context"}
    talk = [{"role": "user", "content": f"{name} is first"}]
    for asked in range(3):
        head = form.known_head([*talk, moving], [TOOL], True, prefix_keys([*talk, moving]))
        assert head is not None and head.length == max(0, len(talk) - 2)
        form.render([*talk, moving], [TOOL], True, head=head)
        talk += [{"role": "assistant", "content": f"{asked}"}, {"role": "user", "content": f"next {asked}"}]


def test_the_cache_of_prompt_starts_is_bounded() -> None:
    heads = KnownHeads(limit=5_000)
    talks = [[{"role": "user", "content": f"{n}"}, {"role": "user", "content": "?"}] for n in range(9)]
    for talk in talks:
        head = heads.find(talk, None, True, prefix_keys(talk))
        assert head is not None and head.length == 0
        heads.keep(head.key, array("i", range(300)))
    lengths = [
        head.length for talk in talks if (head := heads.find(talk, None, True, prefix_keys(talk))) is not None
    ]
    assert lengths == [0] * 6 + [1] * 3
    beyond_json = [{"role": "user", "content": 1 << 80}, *talks[0]]
    assert heads.find(beyond_json, None, True, prefix_keys(beyond_json)) is None


@pytest.mark.parametrize("name", FAMILIES)
def test_text_and_complete_calls_arrive_but_a_truncated_call_does_not(name: str) -> None:
    tokenizer, call = family(name).tokenizer, FAMILIES[name][2]
    prompt, ids = prompt_of(name), tokenizer.encode(call)
    prompt_in_thought = expected(name, tokenizer.encode("x"), prompt)[1] == ""
    opening = tokenizer.encode("so</think>") if prompt_in_thought else []
    assert parsed(name, [opening, ids], prompt)[2] == [("read", {"path": "a.txt"})]
    _, content, calls = parsed(name, [opening, ids[:-2]], prompt)
    assert calls == [] and "a.txt" in content


@pytest.mark.parametrize("name", FAMILIES)
def test_text_is_streamed_before_the_answer_ends(name: str) -> None:
    parser, tokenizer = family(name).parser(True), family(name).tokenizer
    prompt = prompt_of(name)
    parser.begin(prompt, [TOOL])
    text = "so</think>" if expected(name, tokenizer.encode("x"), prompt)[1] == "" else ""
    text += "this is a longer answer, in a few words, that goes on and on"
    shown = [delta for token in tokenizer.encode(text) for delta in parser.feed([token])]
    assert len(shown) > 10 and all(isinstance(delta, TextDelta) for delta in shown)


def test_families_are_detected_by_type_or_by_the_folder_of_a_known_model(tmp_path: Path) -> None:
    for folder, model_type, renderer in (
        ("mine", "glm4_moe", "glm-4.5"),
        ("DeepSeek-R1", "deepseek_v3", "deepseek-r1"),
        ("Qwen3.8-27B", "qwen3_5", "qwen3.8"),
    ):
        (tmp_path / folder).mkdir()
        config = {"model_type": model_type, "max_position_embeddings": 64}
        (tmp_path / folder / "config.json").write_text(json.dumps(config))
        assert ModelFolder.read(tmp_path / folder).renderer == renderer
    (tmp_path / "mine" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ConfigError, match="bert"):
        ModelFolder.read(tmp_path / "mine")


def test_every_type_names_a_renderer() -> None:
    from renderers.configs import config_from_name

    assert all(config_from_name(renderer) is not None for renderer in BY_MODEL_TYPE.values())


@pytest.mark.parametrize("name", [name for name in FAMILIES if "<think>" in FAMILIES[name][1]])
def test_tokens_of_the_reasoning_are_counted(name: str) -> None:
    """Parsers of whole answers count finished reasoning up to its marker."""
    encode, parser = family(name).tokenizer.encode_markup, family(name).parser(True)
    thought = encode("<think>so be it</think>")
    parser.begin(encode("hello"), [TOOL])
    for token in [*thought, *encode("yes")]:
        parser.feed([token])
    parser.finish()
    assert len(thought) - 1 <= parser.reasoning_tokens() <= len(thought)
    plain = family(name).parser(True)
    plain.begin(encode("hello"), [TOOL])
    plain.feed(encode("yes"))
    plain.finish()
    reasoning, _, _ = parsed(
        name, [encode("yes")], encode("hello")
    )  # GLM treats text without a marker as reasoning
    assert plain.reasoning_tokens() == len(encode(reasoning))
