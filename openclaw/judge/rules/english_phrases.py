"""The wordings of complaints, wishes, praise and new tasks: regular expressions over lower-case sentences.

Each list is one alternative a line. COMPLAINT refers to the answer by itself. WISH and PRAISE_INSIDE are
words that a new request may have too, so they count only in a sentence that brings no new topic (see
topics.py).
"""

from __future__ import annotations

import re

FORMAT = (
    r"(?:bullet(?:s|ed)?(?:[ -]?(?:points?|lists?))?|bold(?:ed|ing)?(?: (?:text|words?|type|font))?"
    r"|(?:numbered )?lists?|numbering|numbered (?:steps|points)|markdown|asterisks?|stars?|headings?"
    r"|headers?|titles?|labels?|format(?:ting)?|emojis?|tables?|italics?|symbols?|hash(?:es|tags)?"
    r"|dashes|latex|fluff|filler|jargon|intro(?:duction)?|summary|\"?final answer\"?(?: (?:line"
    r"|label))?|(?:first|last) (?:line|sentence|paragraph|part))"
)
PROSE = r"(?:sentences?|prose|paragraphs?|words|text|language|english|german|french|spanish)"
MANNER = (
    r"(?:natural(?:ly)?|normal(?:ly)?|casual(?:ly)?|(?:in)?formal(?:ly)?|friend(?:ly|lier)|human"
    r"|kind(?:ly)?|warm(?:ly|th)?|nice(?:ly)?|gent(?:le|ly)|polite(?:ly)?|patient(?:ly)?"
    r"|encourag(?:ing|ement)|enthusias\w+|specific(?:ally)?|detail(?:s|ed)?|depth|concise(?:ly)?"
    r"|brief(?:ly)?|short|simpl[ey]|plain(?:ly)?|clear(?:ly)?|readable|conversational(?:ly)?|relaxed"
    r"|personal|supportive|positive|structured|like (?:me|a (?:human|person|student|kid)))"
)
BAD_MANNER = (
    r"(?:long|short|formal|casual|stiff|cold|harsh|blunt|dry|terse|wordy|verbose|brief|vague|generic"
    r"|complicated|fancy|detailed|simple|robotic|mechanical|artificial|unnatural|fake|boring"
    r"|impersonal|stuffy|many|much|few|little|hard|difficult|confusing|rude|cheesy|over the top)"
)
STEPS = r"(?:steps?|work(?:ings?)?|reasoning|calculations?|explanation|derivation|method)"
CHANGE = (
    r"(?:make|turn|change|convert|rephrase|reword|rewrite|redo|revise|rework|reformat|shorten"
    r"|simplify|fix|correct|format|clean up|tone down|write|say|put|word|phrase|keep|get)"
)
ANSWER = (
    r"(?:answer|reply|response|result|solution|text|comment|version|total|number|tone|style|format"
    r"|wording|sum)"
)


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


INNOCENT = _any(
    r"\bno (?:problem|worries|complaints?|rush)\b",
    r"\bno (?:more|further|other)? ?(?:questions?|changes?)(?: (?:are |is )?(?:needed|necessary"
    r"|required))?\b",
    r"\b(?:don't|do not|no need to) (?:you )?(?:have to |need to )?chang(?:e|ing) (?:a thing|anything"
    r"|it|a word)\b",
    r"\bnothing (?:to (?:change|fix|add)|wrong)\b",
    r"\bi need (?:some )?help\b",
)
"""Phrases with a complaint's words that are none; they are blanked before anything is read."""

DELIGHT = _any(
    r"\b(?:thanks|thank you|thx|(?:love|like|appreciate) (?:it|this|that)) (?:so|very) much\b",
    r"\b(?:is |'s |that's )?(?:exactly |just |precisely |that's )(?:what|how|the way) i(?:'d"
    r"| would)? ?\w*\b",
    r"\bwhat i (?:wanted|needed)[.!]*$",
    r"\bnot bad\b",
    r"\bcouldn't be better\b",
    r"\bcan't complain\b",
)
"""Praise with a complaint's words; it is read as `thanks`."""

NEW_TASK = _any(
    r"\b(?:next|new|another|following|other) (?:one|problem|question|task|exercise"
    r"|topic)\b(?: for you)?",
    r"\bhow (?:many|much|long|far|old|fast|tall|often)\b",
    r"\bwhat(?:'s| is) \d",
    r"\b(?:solve|calculate|compute|translate|summari[sz]e)(?: (?:this|it|the following))?\s*:",
    r"\bread (?:the file )?[\w./-]+\.\w+",
    r"\blet's (?:talk|move)\b",
    r"^(?:next|now)\s*[:,]",
)

COMPLAINT = _any(
    # it is wrong
    rf"\b(?:that|this|it|{ANSWER}|part|step|line|still)(?:'s| is| was| looks| seems)? (?:all |just "
    r"|simply |clearly |completely |totally |a )?(?:wrong|incorrect|false|mistaken|off|mess"
    r"|confusing)\b",
    r"\b(?:is|'s|are|was|looks?|sounds?|reads?) not (?:quite |really |very )?(?:right|correct|true"
    r"|good|helpful|what|how|natural)",
    r"\b(?:isn't|aren't|wasn't|doesn't|don't|didn't|can't|won't) (?:\w+ )?(?:right|correct|look|seem"
    r"|add up|sound|help|think so|match|agree|understand (?:it|this|that)|what i|answer|read (?:it"
    r"|this|that))\b",
    r"^(?:nope|nah|wrong|incorrect)\b",
    r"^not (?:quite|right|correct|really|good|what|it|like)\b",
    r"\bwrong (?:again|answer|number)",
    r"\b(?:that|this|it)(?:'s| is| was) (?:the|a) wrong\b",
    r"\bmistakes? in (?:the|your|it|that)\b",
    r"\berrors? in (?:your|the (?:first|second|third|last|answer|calc))",
    r"\bmiscalculat",
    r"\byou(?:'ve| have)? (?:just |only |also |still |again )?(?:forgot|missed|skipped|ignored"
    r"|left out|dropped|didn't|did not|haven't|made an?|got (?:it|that|the)|miscounted|misread"
    r"|misunderstood|only|never|keep|should have|failed|messed|mixed)\b",
    r"\bcheck (?:your|that|it|again)\b",
    rf"\b(?:{ANSWER}|it|that) should (?:have been|be)\b",
    r"\bi (?:get|count|make it) \d",
    r"\bare you (?:really |quite )?sure\b",
    r"\bis (?:that|this|it) (?:really |actually )?(?:right|correct)\b",
    r"\b(?:no|actually),? i (?:asked|meant|wanted|said|need|told)\b",
    r"\bi (?:asked|meant|told you|said|wanted)\b(?! to \w+ (?:a|an|my)\b)",
    r"^no, (?:that|this|it|the|please|not|you)\b",
    r"\bmakes no sense\b",
    r"\bi(?:'m| am) not (?:\w+ )?(?:happy|satisfied|convinced|sure about)\b",
    r"\b(?:that|this|it)(?:'s| is) (?:useless|pointless|terrible|awful|horrible|nonsense|rubbish|bad"
    r"|ugly|unreadable|not)\b",
    # do it again, in another way
    r"\b(?:redo|rephrase|reword|rewrite|retry|revise|reformulate|re-?do|re-?write)\b",
    r"\bstart over\b",
    r"\b(?:try|do|write|say|answer)(?: (?:it|that|this))?(?: please)? (?:again|once more|over"
    r"|differently)\b",
    r"^(?:once more|again)\b",
    rf"\b{CHANGE} (?:it|this|that|them|everything|the {ANSWER}|your {ANSWER})\b(?! (?:to|into|in"
    r"|down) (?:the |a |my |file)*(?:file|homework|doc|note)| down|\s*to \S+\.\w)",
    r"\b(?:like|by) (?:an? )?(?:ai|robot|machine|chat ?bot|bot|computer|template|textbook)\b",
    r"\brobot(?:ic)? (?:wrote|writing)",
    r"\b(?:ai|bot|robot) (?:wrote|made|generated)",
    r"\bai[- ](?:look|style|generated|ish)\b",
    r"\bthis is ai\b",
    rf"\b(?:that|this|it|{ANSWER}|they|you) (?:is |are |'s |looks |sounds |reads |feels "
    rf"|seems )?(?:a bit |a little |way |far |much |still )*(?:too|so|overly|rather) {BAD_MANNER}\b",
    r"\b(?:it|that|this)(?:'s| is) (?:(?:a bit|a little|way|far|much|too|still|so|very)"
    rf" )*{BAD_MANNER}\b",
    r"\bi (?:can )?still (?:see|find|read)\b",
    r"\bexcept (?:that|for)\b",
    r"\bhow (?:did you|you|do you) (?:get|got|come|came|arrive|calculate|find|found|work)\b",
    r"\bwhy (?:did|do|are|would) you\b",
    r"\bwhere (?:did|does|do) (?:the|that|this|your|those) [\w ]+ come from\b",
    r"\bwhy is (?:it|this|that|everything|all)\b",
    r"\bbut (?:please|could|can|less|more|without|no|don't|not|make it|write it|keep|i need"
    r"|the (?:style|tone|format|answer))\b",
    r"👎",
    r"🙁",
    r"😡",
    r"😠",
)

WISH = _any(
    r"\b(?:no|without|drop|remove|skip|stop|delete|lose|cut|avoid|fewer|less|omit|get rid|leave out"
    r"|take out|don't|not|hate|enough|instead of|too many|too much|so many|all (?:the|these|those)"
    rf"|rather than|still)(?: \w+){{0,4}} {FORMAT}",
    rf"\b{FORMAT} (?:out|away|off|again|everywhere|(?:have|has|needs?|must) to go|(?:would|might)"
    r" be)\b",
    r"\bin (?:bullets|bold)\b",
    rf"\b(?:use|with|as|in|want|prefer|give me) (?:more |a |an |some )*{FORMAT}",
    rf"\b(?:use|in|as|want|prefer|like|just|only) (?:\w+ ){{0,3}}{PROSE}\b",
    r"\b(?:paragraph|sentence) (?:is|would be) (?:enough|better)\b",
    r"\b(?:more|less|too|so|overly|be|a bit|a little|but) (?:more |a bit |a little "
    rf"|less )*(?:{MANNER}|{BAD_MANNER})\b",
    rf"\b(?:very|sounds?|reads?|looks?|feels?) (?:very |so |a bit |a little )*{BAD_MANNER}\b",
    rf"\b(?:write|say|put|phrase|explain|answer|tell)(?: \w+)? (?:more |less )*{MANNER}\b",
    r"\b(?:shorter|longer|simpler|kinder|warmer|friendlier|softer|nicer|briefer|gentler|clearer)\b",
    r"\b(?:show|include|keep|add|see|write|give|want|need|explain|where(?:'s| is| are)|without"
    rf"|missing|no)(?: me)?(?: all| how)?(?: the| your| every| each| full| any)? ?{STEPS}\b",
    r"\bshow (?:your|me how)\b",
    r"\bexplain(?: (?:it|this|that|how|why|your|the|more|better|again)\b|[.!?]*$)",
    r"\belaborate\b",
    r"\bexpand\b",
    rf"\b(?:just|only)(?: want| need)?(?: the| a)?(?: final| bare)? (?:{ANSWER})\b",
    r"\b(?:don't|not) (?:just|only)\b",
    r"\bi(?:'d| would) (?:rather|prefer|like (?:it|this|that|a|the|more|less|to see))\b",
    r"\bi (?:don't |do not |just )?(?:prefer|need|want|like) (?!it\b|this\b|that\b)",
    r"\binstead\b",
    r"\bi (?:don't|do not|didn't) (?:want|like|need|see|get|understand)\b",
    r"\b(?:mistake|useless|terrible|awful|horrible)\b",
    r"\bchange the (?:tone|style)\b",
    r"\brobot(?:ic)?\b",
    r"\bmore detail",
)

_GOOD = (
    r"(?:great|perfect|awesome|excellent|wonderful|amazing|brilliant|fantastic|good|nice|cool|lovely"
    r"|beautiful|fine|correct|right|super|exactly|well done|better|spot on|bravo|impressive|sweet"
    r"|neat|ideal|happy|natural|clear)"
)
_ASIDE = (
    r"(?:ok|okay|yes|yep|yeah|ah|oh|wow|and|so|very|really|pretty|all|much|super|finally|that's"
    r"|that is|this is|it's|looks|sounds)"
)

PRAISE_FIRST = _any(
    rf"^(?:{_ASIDE}[, ]+)*(?:thanks?(?: you)?|thx|ty|cheers|danke|merci|gracias)\b",
    rf"^(?:{_ASIDE}[, ]+)*{_GOOD}(?=$|[,.!;:)]| (?:job|work|answer|one|now|and|but|enough|for me"
    r"|with (?:it|that|this)|save|go))",
    r"^(?:yes|yep|yeah|yup|agreed)[.!]*$",
    r"^(?:yes|yep|yeah),? (?:that's|this is|please|it)\b",
    r"\b[a-z]+_done\b",
    r"👍",
    r"❤",
    r"😊",
    r"🎉",
    r"🙏",
    r"👏",
    r"💯",
)
"""Praise at the start of a sentence, whatever follows."""

PRAISE_INSIDE = _any(
    r"\bthanks?(?: you)?\b",
    r"\bthx\b",
    r"\bcheers\b",
    r"\bappreciate",
    r"\b(?:looks?|sounds?|reads?|feels?|seems?|works?|is|'s|you did|much|way|a lot|far) (?:so |very "
    rf"|really |much )*{_GOOD}\b",
    r"\b(?:i|we) (?:really |do |just )?(?:like|love|enjoy)(?:d)? (?:it|this|that|the|how|your)\b",
    r"\blove (?:it|this|that)\b",
    r"\b(?:that|this|it)(?:'s| is| was) (?:it|what i|helpful|all i)\b",
    r"\bthat (?:helps|helped|works|worked|makes sense|will do|clears)\b",
    r"\b(?:works for me|makes sense|got it|lgtm|lifesaver|i understand (?:it|now|this)|i'm impressed"
    r"|sounds like me)\b",
    r"\b(?:write|save|append|add|put|copy|store)(?: (?:it|this|that|the \w+|your \w+))? (?:down|(?:in"
    r"|into|to) (?:the |my |a |your )?(?:file|homework|document|notes?)|(?:in|into|to) \S+\.\w{2,4})\b",
    r"\bsave (?:it|this|that)\b",
    r"\bgo ahead\b",
)
