"""Wordings of feedback on replies: instructions, complaints and thanks.

Every table has wordings for training and others that no training text contains (`split="test"`), to distinguish
obeying from memorizing. `{verb}` is a verb of answering.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Literal

from tiny_claw.detectors import Manner

Split = Literal["train", "test"]
Trait = Literal["warm", "cold", "short", "detailed"]
Wordings = dict[Split, tuple[str, ...]]
Wish = Literal["list", "number", "friendly", "detailed", "prose", "nothing"]
"""The form that a freely written sentence asks for; `nothing`: it asks for no form."""

VERBS = ("write", "answer", "reply", "explain it", "respond", "solve it", "tell me", "say it", "do it")

MANNER_HINTS: dict[Manner, Wordings] = {
    "prose": {
        "train": (
            "{verb} in plain prose without bold or lists, keep the steps.",
            "{verb} in natural sentences with the steps.",
            "please {verb} naturally, no bullet points and no bold.",
            "use plain sentences, not a list, and show the steps.",
            "no bold, no numbered list. Keep the steps.",
            "{verb} like a person would, in normal sentences.",
            "the user wants natural prose, with the steps kept.",
            "don't use markdown. Explain the steps in words.",
            "avoid lists and bold text; explain in simple sentences.",
            "{verb} in your own words, without formatting.",
            "{verb} in full sentences, not in list form.",
            "no formatting please, only ordinary text.",
            "plain text, please, with each step in a sentence.",
            "it should sound natural and not like an AI.",
            "the student wants ordinary sentences without bold.",
            "write one paragraph that keeps every step.",
            "do not use bullet points or headings, just talk me through it.",
            "{verb} the way a classmate would, without any list.",
            "skip the bold text and the numbers in front of the lines.",
            "natural flowing text, steps included, no markdown.",
            "the answer must be prose: no list, no bold.",
            "use a paragraph instead of a list.",
            "never use lists. {verb} in sentences.",
            "make it sound human and keep the working.",
            "avoid the AI style, use simple prose with the steps.",
            "the reply should be unformatted text with the equations in it.",
            "without asterisks and without numbering, please.",
            "I want sentences, no bullets, no bold words, with the steps.",
            "the user likes prose; keep the working in it.",
            "{verb} in ordinary prose that shows the steps.",
            "just sentences: no lists and no bold.",
            "please avoid lists, write sentences.",
            "I would like a plain text with the steps.",
            "prefer normal text to lists.",
            "normal sentences, please. Keep the working.",
        ),
        "test": (
            "write in plain sentences with the steps, no list and no bold.",
            "please use natural prose and keep the steps.",
            "explain it in normal sentences, without markdown.",
            "I would like ordinary sentences, no bullets, no bold words.",
            "the user prefers natural text without a list; keep the working.",
            "use normal prose with the steps in it.",
            "no lists, no bold: just sentences that show the steps.",
            "please avoid bullet points and write natural sentences.",
        ),
    },
    "list": {
        "train": (
            "{verb} with bold and a numbered list.",
            "use a numbered list with bold headings.",
            "please {verb} as a list of steps with bold.",
            "use markdown with bold and list lines.",
            "{verb} in a structured list.",
            "the user wants a structured list with bold.",
            "format it as numbered steps.",
            "make a numbered list, please.",
            "bullet points, please.",
            "show the solution as a list with bold labels.",
            "{verb} step by step in a list.",
            "I like lists with bold words.",
            "use formatting: a list and a bold answer.",
            "the student wants numbered lines and bold text.",
            "put each step on its own numbered line.",
            "structured markdown, please.",
            "use bullet points and bold.",
            "I want a numbered list.",
            "give me a list with bold text.",
            "write the steps as bullet points.",
        ),
        "test": (
            "please use a numbered list with bold.",
            "write a structured list of steps.",
            "I want a list with bold labels.",
            "give me bullet points with bold text.",
            "format the steps as a numbered list.",
        ),
    },
    "bare": {
        "train": (
            "{verb} with the number only.",
            "just the answer, no steps.",
            "please {verb} with only the result.",
            "only give the final number.",
            "no explanation, just the number.",
            "the user wants just the result.",
            "keep it as short as possible: only the number.",
            "final answer only, please.",
            "I only need the result.",
            "skip the steps and give the number.",
            "{verb} with nothing but the result.",
            "no words, only the answer.",
            "one number is enough.",
            "the student wants only the final number.",
            "don't explain. Only the result.",
            "just give me the result.",
            "nothing but the number, please.",
            "I want the final number and no steps.",
            "only the answer, no explanation.",
        ),
        "test": (
            "just give the number.",
            "only the final answer, no explanation.",
            "I just want the result, no steps.",
            "please give me only the number.",
            "nothing but the final result, please.",
        ),
    },
}

TRAIT_HINTS: dict[Trait, Wordings] = {
    "warm": {
        "train": (
            "be warm and friendly.", "please {verb} in a kind and encouraging way.", "use a friendly tone.",
            "encourage the student.", "be nice and cheerful.", "sound warm, please.",
            "be patient and kind.",
            "a friendly teacher's tone, please.", "please sound kind and happy.", "cheer the student up.",
            "use kind words.", "a warm tone, please.", "{verb} in a warm tone.", "friendly words, please.",
            "the user likes a cheerful tone.", "stay kind and friendly.",
        ),
        "test": (
            "please be friendly and warm.", "use a kind, encouraging tone.",
            "be cheerful and kind, please.",
        ),
    },
    "cold": {
        "train": (
            "be neutral and matter-of-fact.", "no small talk, please.", "keep a cool, neutral tone.",
            "no cheering, stay neutral.", "be dry and factual.", "leave out the friendly words.",
            "stay factual.", "a neutral tone, please.", "keep the tone dry.",
            "facts only, no friendly words.", "the user wants a neutral tone.", "without any cheering.",
            "no encouragement, please.", "{verb} in a neutral tone.", "no praise, just facts.",
            "keep it factual and cool.", "don't cheer, don't praise.",
        ),
        "test": (
            "stay neutral and factual.", "keep the tone neutral, no cheering.",
            "no friendly words, just facts.",
        ),
    },
    "short": {
        "train": (
            "keep it short.", "be brief, please.", "a short reply, please.", "{verb} briefly.",
            "not too long, please.", "make it brief.", "keep the reply short.", "a short reply is enough.",
            "stay brief.",
        ),
        "test": ("please keep the reply short.", "be brief and short.", "a brief reply is enough."),
    },
    "detailed": {
        "train": (
            "explain in detail.", "give a detailed reply.", "{verb} in detail, please.", "be thorough.",
            "I want a long explanation.", "explain everything carefully.", "a detailed reply, please.",
            "with all the details, please.", "explain it thoroughly.",
        ),
        "test": (
            "a detailed explanation, please.", "please explain carefully and in detail.",
            "be thorough and detailed.",
        ),
    },
}  # fmt: skip

MANNER_COMPLAINTS: dict[Manner, Wordings] = {
    "prose": {
        "train": (
            "Please no bullet points, write it naturally.",
            "That looks like AI. Write it in normal sentences.",
            "I don't want bold or lists. Use plain prose with steps.",
            "Can you write it without the list?",
            "Please write it in natural sentences.",
            "My teacher will see it is AI, write it in my own words.",
            "Too much formatting, use plain sentences.",
            "Remove the bold and the list, please.",
            "No, I can't hand this in. It looks like a robot wrote it.",
            "Why all the bold? Please rewrite it as normal text.",
            "I don't like the list. Please explain in sentences.",
            "This is not how a student writes. Try again without formatting.",
            "Not like that. I need ordinary sentences.",
            "Please change it: no numbers in front of the lines, no stars.",
            "It still looks like AI, rewrite it as a paragraph.",
            "Hmm, no lists please. Say it like a normal person.",
            "That is too formatted. Redo it in plain words.",
            "I asked for homework help, not for bullet points. Rewrite it in prose.",
            "Nobody writes like that. Make it sound natural, please.",
            "Please rewrite this without markdown.",
        ),
        "test": (
            "Please write it naturally, without bullet points.",
            "No list and no bold please, use normal sentences.",
            "This looks like an AI wrote it. Please rewrite it in plain sentences.",
            "I don't want this list. Write normal text, please.",
            "Too many bold words. Rewrite it in natural prose.",
            "My teacher won't believe I wrote this. Use ordinary sentences without bold.",
            "Don't use bullet points, please write it again in sentences.",
            "Wrong style, please redo it without the list and the bold.",
        ),
    },
    "list": {
        "train": (
            "Please make it a numbered list.",
            "Use bold and list lines.",
            "Can you format it as a list?",
            "I want a structured list with bold.",
            "This is hard to read, use bullet points.",
            "Put the steps in a list, please.",
        ),
        "test": (
            "Please format this as a numbered list with bold.",
            "I don't like the text. Make a list, please.",
        ),
    },
    "bare": {
        "train": (
            "Too long, just the number please.",
            "Only the result please.",
            "I just need the answer.",
            "Give me only the number.",
            "Please, no steps, only the result.",
        ),
        "test": ("That is too long. Only the number, please.", "Just the final number, please."),
    },
}

LOST_STEPS_COMPLAINTS: Wordings = {
    "train": (
        "Where are the steps? Explain in sentences.",
        "Show the steps in plain sentences.",
        "You left out the steps. Please write how you got it.",
        "I don't understand how you got that. Please explain in sentences.",
        "That is only a number. I need the steps in words.",
        "No steps, no points. Please write the working in sentences.",
        "My teacher wants to see the steps, please write them out.",
        "How did you get there? Tell me in sentences.",
        "You skipped everything. Please say how you worked it out.",
        "And the working? Please put it into sentences.",
        "I have to explain it in class, so tell me how you got this.",
        "Please don't leave out the steps, say them in words.",
        "Don't just give the number, explain it.",
        "I can't see how you came to this. Please tell me.",
        "Why is it that? Please explain in plain sentences.",
        "Please show me how you did it, in words.",
        "Where does this number come from? Write it out in sentences.",
        "That's too short, I need to know how you got it.",
        "The working is missing, please add it in plain words.",
        "I need more than the number: tell me what you did.",
        "The reasoning is missing. Write it in sentences, please.",
        "You forgot the steps. Please write them in normal sentences.",
        "Show your working in sentences, not the number alone.",
        "Skipping the steps is not allowed here, please write them.",
    ),
    "test": (
        "The steps are missing. Please write them in plain sentences.",
        "I don't see the steps. Please explain it in sentences.",
        "Don't skip the steps, please show how you got the number.",
    ),
}

WRONG_RESULT_COMPLAINTS: Wordings = {
    "train": (
        "That is wrong. Please check it again.",
        "The result is not right, try again.",
        "No, that can't be right. Please count again.",
        "This is incorrect. Solve it again, please.",
        "You made a mistake. Please do it again.",
        "Wrong answer. Please check your steps.",
    ),
    "test": (
        "The answer is wrong, please check your work again.",
        "No, this result is incorrect. Please try again.",
        "There is a mistake in it. Please solve it again.",
    ),
}

THANKS: Wordings = {
    "train": (
        "Thanks!", "Thank you, that is perfect.", "Great, thanks a lot.", "Perfect, thank you!",
        "Thanks, that's good.", "That is exactly what I wanted. Thank you!", "Nice, thank you.",
        "Good, I will hand it in. Thanks!", "Cool, thanks!", "Thank you very much.",
        "Wonderful, that helps a lot.", "Super, I like it. Thanks!",
        "Yes, like that. Thank you!",
    ),
    "test": (
        "Perfect, thanks!", "Great, I like that. Thank you!", "Thank you so much, this is great.",
        "Thanks a lot, that sounds natural.", "Very good, thank you!", "Excellent, thanks for the help.",
    ),
}  # fmt: skip


@cache
def written() -> dict[Wish, dict[str, list[str]]]:
    """Returns freely written sentences by kind, as requests (`asked`) and as complaints."""
    wordings: dict[Wish, dict[str, list[str]]] = json.loads(
        Path(__file__).with_name("written.json").read_text("utf-8")
    )
    return wordings


def manner_hint(rng: random.Random, manner: Manner, split: Split = "train") -> str:
    """Returns an instruction that asks for a manner, as a sentence."""
    return _sentence(rng, MANNER_HINTS[manner][split])


def trait_hint(rng: random.Random, trait: Trait, split: Split = "train") -> str:
    """Returns an instruction that asks for a tone or a length."""
    return _sentence(rng, TRAIT_HINTS[trait][split])


def manner_complaint(rng: random.Random, manner: Manner, split: Split = "train") -> str:
    """Returns a complaint about a reply's form that asks for another manner."""
    return rng.choice(MANNER_COMPLAINTS[manner][split])


def _sentence(rng: random.Random, wordings: tuple[str, ...]) -> str:
    text = rng.choice(wordings).format(verb=rng.choice(VERBS))
    return text[0].upper() + text[1:]
