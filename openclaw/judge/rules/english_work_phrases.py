"""The wordings of verdicts on work done (programs, plans, letters, repairs); english_phrases.py has those on answers.

FAULT and SUCCESS speak of the work by themselves. SLIP and CHANGE are words that a new request may have too, so they
count only in a sentence that brings no new topic.
"""

from __future__ import annotations

import re

_NOT = (
    r"(?:doesn'?t|does not|didn'?t|did not|won'?t|isn'?t|is not|wasn'?t|aren'?t|can'?t|cannot|can not|never)"
)
_IT = (
    r"(?:it|this|that|the (?:\w+ )?(?:page|code|script|function|query|program|app|file|link|test|tests"
    r"|build|site|output|command|fix))"
)
_UNIT = (
    r"(?:grams?|kilos?|kg|litres?|liters?|ounces|celsius|fahrenheit|met(?:re|er)s?(?: per \w+)?|miles?"
    r"|km|inches|feet|euros?|dollars?"
    r"|minutes|hours|seconds|percent|the (?:first|second|third) person|(?:past|present) tense"
    r"|(?:american|british) \w+)"
)


_PLEASE = (
    r"(?:please |pls |now |and |also |then |just |but |so |ok,? |could you |can you |can we |could we "
    r"|would you |will you |maybe |kindly )*"
)


def _any(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


FAULT = _any(
    # it does not work
    rf"\b{_NOT} (?:even |really |actually |seem to )?(?:work|run|compile|start|load|open|build|render"
    r"|respond|install|parse|handle|fit)\b",
    r"\b(?:still|again|same)\b[^.?!]{0,30}\b(?:errors?|problem|issue|bugs?|wrong|broken|fails?|failing"
    r"|crash\w*|blank|empty|nothing|\d{3})\b",
    r"\b(?:same|another|syntax|compile|runtime|type|import|an) error\b|\b\w+(?:error|exception)\s*:"
    r"|\btraceback \(most recent",
    rf"\b{_IT} (?:still |just |now |always |only )?(?:crash(?:es|ed)|breaks|broke|fails|failed|freezes"
    r"|froze|hangs|throws|errors)\b",
    rf"\b{_IT}(?:'s| is) (?:still |now |all |totally |completely )?(?:broken|blank|empty|buggy|gone|down"
    r"|corrupt(?:ed)?)\b",
    rf"\b{_IT} (?:only |just )?(?:returns?|shows?|gives?|prints?|lists?|hides?) (?:me )?(?:only "
    r"|just )?(?:nothing|none|null|nan|everything"
    r"|everybody|an? (?:empty|blank|error)|the (?:same|error|symptom))",
    r"^(?:it )?(?:broken|buggy|fails?|failed|crash(?:es|ed)|nothing (?:happens|works|changed))[.!]*$",
    r"\b(?:undo|revert|roll(?:ed)? (?:it |that )?back|change (?:it|that) back|put (?:it|that) back)\b",
    r"\bnow (?:i|it|nothing|everything|we)\b[^.?!]{0,20}\b(?:can'?t|cannot|doesn'?t|won'?t|worse|broken"
    r"|fails)\b",
    # it is not true
    r"\byou (?:just |simply |also )?(?:edited|invented|fabricated|broke|divided|multiplied|confused"
    r"|assumed|mixed|misspelled|mistook|misunderstood"
    r"|hallucinated|made (?:that |this |it |the \w+ |\w+ )?up|made (?:an? )?(?:mistake|error)|swapped"
    r"|left|ignored|overlooked)\b",
    r"\b(?:that|this|it|which) (?:can ?not|can'?t|could not|couldn'?t) (?:possibly )?be\b",
    r"\b(?:textbook|book|teacher|manual|documentation|calculator) says?\b(?! (?:it|that|this)(?:'s| is)"
    r" (?:right|correct|good|great|fine))",
    r"\bi (?:have |had |'ve |'d )?never (?:said|asked|told|wanted|mentioned|worked|was|been|did|had|lived)\b",
    r"\bas i (?:said|told|wrote|mentioned|explained)\b|\bi (?:already |clearly |just "
    r"|distinctly )?(?:said|told you|asked for|specified|mentioned)\b",
    r"\b(?:out of date|outdated|obsolete|no longer (?:exists?|true|valid|open|there)"
    r"|discontinued|deprecated)\b",
    r"\bmy (?:dad|mum|mom|wife|husband|boss|address|birthday|version|title|company) (?:is not|isn'?t"
    r"|was not|wasn'?t|is dead)\b",
    r"\b(?:somebody|someone) else'?s?\b|\bthe wrong (?:\w+)|\bwrong (?:file|one|way|person|name"
    r"|recipient|date|place|language|order|tests?|page|year|unit)",
    r", (?:and )?not (?:an? |the |my |your |in |for |from |about |to )?\w+[.!]*$",
    # it wants another shape
    r"\bi (?:only|just) (?:want|wanted|need|needed|meant)\b|^you (?:should|could|must|need|ought)\b"
    r"|\byou(?:'ve| have) left\b",
    rf"^{_PLEASE}(?:replace|swap|exchange|shorten|lengthen|trim|reorder|reverse the order|tone)\b",
    r"\b(?:it|this|that|you|they) (?:should|must|needs? to|has to|have to|ought to) (?:also |really "
    r"|at least )?(?:mention|include|contain|say|cover"
    r"|rhyme|start|end|sound)\b",
    r"^(?:\w+er|(?:more|less) \w+),? please\b",
    # it is poor
    r"\b(?:what|who) (?:the (?:hell|heck|f\w+) )?(?:is|was) (?:this|that)\b(?! \w)|\bwtf\b|\bseriously\?"
    r"|\bare you (?:kidding"
    r"|serious|joking)|\bnever ?mind\b|\bforget it\b|\bi give up\b",
    r"^(?:useless|nonsense|garbage|trash|rubbish|crap|lame|boring|terrible|awful|horrible|meh|ugh|yuck"
    r"|bad|ugly|sloppy|lazy)\b",
    r"\b(?:so|too|very|way too|how|pretty|really|all) (?:generic|boring|vague|cheesy|clumsy|awkward"
    r"|stiff|sloppy|lazy|bland|lame|shallow"
    r"|repetitive|corny|childish|dull|rude|pushy|slow|expensive|old|obvious|salty|sweet|dark|loud)\b",
    r"\b(?:that|this|it)(?:'s| is) (?:not|hardly|barely|no|only|just) (?:even |really )?an? \w+",
    r"\bonly (?:gave|did|wrote|made|fixed|solved|answered|half|part of|one (?:sentence|line|word"
    r"|paragraph))\b",
    r"\b(?:nobody|no one|no human|who) (?:says?|talks?|writes?|speaks?|uses?)\b",
)

SLIP = _any(
    r"\b(?:typo|misspell\w*|bugs?|ruined|messed up|half-?done|incomplete|unfinished|inaccurate"
    r"|misleading|confusing)\b",
    r"^(?:it|this|that|there|the \w+(?: \w+)?|my \w+|our \w+|he|she|they|we) (?:\w+ )?(?:isn'?t|aren'?t"
    r"|wasn'?t|weren'?t|doesn'?t|don'?t|didn'?t"
    r"|won'?t|can'?t|hasn'?t|haven'?t|is not|are not|was not|were not|does not|do not|did not|hates?"
    r"|is dead|died)\b",
    r"^(?:it|that|this|the \w+) (?:was|is|were|are) (?:about|on|in|for|called|named|due|at|from)\b",
    r"\b(?:there(?:'s| is| are) (?:nothing|no|none)|nothing (?:about|like|on) (?:it|that|this)"
    r"|where would (?:we|i|you))\b",
    r"\b(?:we|i)(?:'ve| have) (?:already |been |done |seen |tried |had )+",
    r"\b(?:writes?|could do) better\b",
)

CHANGE = _any(
    rf"^{_PLEASE}(?:switch|drop|remove|cut|delete|strip|merge|combine|split|move|rename|reorder|sort"
    r"|include|mention|insert|add|use|avoid|skip|leave|start (?:over|again|with)|pick|choose|take out"
    r"|tone|spell|capitalize|indent|translate (?:it|that|this))\b"
    r"(?! (?:it|this|that|them) (?:to|in|into|on) (?:my|the|our) (?:calendar|file|list|notes?|homework"
    r"|document|diary|cart|schedule))",
    rf"\b(?:in|using|with) {_UNIT}(?:$|[,.! ](?!is|are))",
    r"\b(?:as|into|in) an? (?:\w+ )?(?:table|list|story|letter|paragraph|sentence|poem|email|json|csv"
    r"|diagram|chart|class|script)\b",
    r"^(?:the )?same (?:thing |text |one )?(?:again|but|as|in|with)\b|\b(?:once more|one more time"
    r"|try again|start again|do it over)\b",
    r"\b(?:should|must|needs? to|has to|have to|ought to) (?:also |really |at least |not )?(?:be|mention"
    r"|include|contain|have|use|say|start|end|go|sound"
    r"|look|come|work|say|cover|rhyme|fit)\b",
    r"\b(?:something|somewhere|someone|anything) (?:else|less|more|different|shorter|better)\b"
    r"|\bpick (?:another|something|a different)\b",
    r"\b(?:at least|at most|no more than|not more than|under|max(?:imum)?) (?:\w+ )?(?:lines?|verses?"
    r"|words?|sentences?|pages?|paragraphs?|characters?)\b",
    r"\b(?:more|less|bit|little) (?:time|room|space|context|serious|fun\w*|direct|modern)\b",
    r"\b(?:stronger|funnier|stricter|cheaper|faster|slower|bigger|smaller|lighter|darker|earlier|later"
    r"|bolder|louder)\b",
    r"\bi(?:'d| would) (?:rather|prefer)\b|\bwithout (?:the |any |an? )?\w+[.!]*$",
)

SUCCESS = _any(
    r"\b(?:it |that |this |now |everything |all |login |page |code |code |query )?(?:runs?|ran|works?"
    r"|worked|working|builds?|loads?|compiles?)"
    r" (?:now|again|fine|great|well|perfectly|nicely|flawlessly|smoothly|beautifully|like a (?:charm"
    r"|dream)|as expected|on my \w+|too)\b",
    r"^(?:it |that |this )?(?:works|worked|runs|compiles|solved|fixed|confirmed|merged|booked|sent|done"
    r"|bought|shipped|deployed|pushed|delivered)\b[^?]*$",
    r"\b(?:tests?|checks|everything|all) (?:are |is |now )?(?:pass(?:es|ing|ed)?|green|good|fine|ok|set)\b",
    r"\b(?:did the trick|nailed it|made my (?:day|week)|saves? (?:me|us)|saved (?:me|us|my)|spot on"
    r"|genius|legend|hero"
    r"|impressive|elegant|brilliant|(?:great|good) idea|sounds (?:like )?(?:fun|good|great|perfect"
    r"|like a plan)|ship it|well put)\b",
    r"\b(?:sending|using|booking|buying|printing|framing|submitting|posting|trying|merging) (?:it|this"
    r"|that|them)\b",
    r"^(?:sent|forwarded|copied|booked|printed|submitted|posted|saved|used|merged|bought|ordered)\b",
    r",? (?:sent|forwarded|copied|booked|printed|submitted|posted|saved|merged) (?:it|this|that|them)\b",
    r"\b(?:that |it |this )?(?:matches|agrees with|is the same as|equals) (?:the|my|our)\b|\b(?:that's"
    r"|that is|exactly) what (?:my|the|our|he|she|i)\b",
    r"\b(?:exactly|just|precisely) (?:the|what|as|how|like)\b",
    r"\bi (?:got|passed|won|aced) (?:the|my|it|an?)\b|\b(?:he|she|they|my \w+) (?:loves?|loved|likes?"
    r"|liked|cried|laughed|smiled|agreed|accepted|approved)\b",
    r"\b(?:says?|said|thinks?|thought) (?:it|that|this)(?:'s| is| was) (?:great|good|perfect|lovely"
    r"|right|correct|fine|beautiful|wonderful)\b",
    r"\b(?:better|faster|nicer) than (?:i|we)\b|\b(?:didn'?t know that|good to know|learnt"
    r"|learned (?:something|a lot))\b",
    r"\b(?:perfectly|delicious|gorgeous|superb|splendid|stunning|marvell?ous|terrific|flawless|phenomenal)\b",
    r"\b(?:ta|grazie|arigato|obrigad[oa]|kudos|props|hats off|respect|haha|hehe|yay|yes!|hooray|woo ?hoo)\b",
    r"\bthe \w+ (?:is|are) (?:back|fixed|fine|up|running|working|ok)(?: again| now)?\b",
    r"\b(?:love|loved|loving|adore|adores) (?:it|this|that|the|how|your)\b",
)
