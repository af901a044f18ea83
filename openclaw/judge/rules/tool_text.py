"""Failure in the plain text of a tool result: what command lines, compilers, test runners and tools write.

Some wordings are failures wherever they stand; others only where a report begins or in a text too short to be a
document, because a file that a tool has read may speak of errors too.
"""

from __future__ import annotations

import re

_CODE = re.compile(
    r"\bexit(?:ed)?(?:\s+with)?\s+(?:code|status)\s*[:=]?\s*(-?\d+)|(?:退出|返回|错误)(?:代?码|状态"
    r"|值)\s*[::为]?\s*(-?\d+)",
    re.IGNORECASE,
)
_ANYWHERE = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^\s*(?:[A-Za-z_][\w.]*)?(?:Error|Exception)\s*(?:\[[^\]]*\])?:\s"
    r"|^\s*(?:error|fatal|fatal error|panic|failed|failure)\s*(?:\[[^\]]*\])?:\s|^\s*(?:error|failed)\s*$"
    r"|^FAILED\s|^--- FAIL|^FAIL\b|\b[1-9]\d* (?:failed|errors?)\b(?=[ ,].*\bin\s[\d.]+ ?s|,|\.?$)"
    r"|: command not found\b|: No such file or directory\b|: Permission denied\b|^Segmentation fault\b"
    r"|\bENOENT\b|\bEACCES\b|\bETIMEDOUT\b|\bENOTFOUND\b|\bECONNREFUSED\b|^npm ERR!"
    r"|^(?:command|process|request) (?:timed out|failed)\b|^make: \*\*\*|\bcore dumped\b"
    r"|:\d+(?::\d+)?:? (?:- )?(?:fatal )?error\b|^[\w+./-]+: (?:fatal )?error: |^error\[\w+\]: "
    r"|^\s*(?:错误|异常|失败|致命错误)\s*[::]|未找到命令|没有那个文件或目录|核心已转储|无法识别的命令",
    re.MULTILINE,
)
_CASELESS = re.compile(r"^\s*error:\s", re.IGNORECASE | re.MULTILINE)
_STATUS = re.compile(
    r"^\s*(?:HTTP(?:/\d(?:\.\d)?)?[ :]+|status(?: code)?[ :=]+|状态码?[ ::]*)?[45]\d\d(?: [A-Z]|\s*$)"
)
_REPORT = re.compile(
    r"^(?:sorry|i'm sorry|i am sorry|unfortunately|oops|whoops|[\w.]+\.(?:error|exception):)"
    r"|^(?:[\w./+-]+: )*(?:line )?(?:\d+: )?(?:an? )?(?:tool |internal "
    r"|unexpected )?(?:errors?\b[^.\n]*:|cannot\b|can't\b|could not\b"
    r"|couldn't\b|unable to\b|failed\b|failure\b|no such\b|permission denied|access denied"
    r"|operation not permitted|invalid\b"
    r"|unknown\b|unrecognized\b|unsupported\b|missing\b|unauthori[sz]ed|forbidden|not found"
    r"|not authori[sz]ed|time(?:d )?-?out"
    r"|connection (?:refused|reset|aborted|timed out|error)|rate limit|too many requests|quota exceeded"
    r"|file not found|e: |killed\b"
    r"|aborted\b|terminated\b|bad (?:request|gateway)|service unavailable|internal server error"
    r"|out of memory|not a valid)"
    r"|\b(?:permission denied|access denied|operation not permitted|connection refused|connection reset"
    r"|could not (?:resolve|connect"
    r"|open|find)|cannot (?:open|find|access|remove|connect)|timed out|timeout of|time limit exceeded"
    r"|out of memory|command not found"
    r"|no such file|is not recognized as|does not exist|max retries exceeded|rate limit(?:ed)? exceeded"
    r"|network (?:is )?unreachable"
    r"|was (?:aborted|cancelled|killed|denied|rejected)|: not found\b|not permitted|is required"
    r"|required property|(?:currently|temporarily) (?:unavailable|down))\b",
    re.IGNORECASE,
)
_CHINESE_REPORT = re.compile(
    r"^(?:很?抱歉|对不起)|失败|错误|出错|报错|异常|超时|拒绝|不存在|找不到|未找到|无法|不能(?!为空的)"
    r"|没有权限|无权|权限不[够足]|未授权|未登录|缺少|无效|非法"
    r"|不允许|不合法|不支持|被占用|占用中|段错误|未通过|没有?通过|限流|(?:请求|访问|操作"
    r"|调用)(?:过于频繁|过多|太多)|稍[后候]再?试|中断|崩溃|溢出|不可用"
)
_NO_FAILURE = re.compile(
    r"\b(?:0|no|without) (?:\w+ )?(?:failed|failures?|errors?)\b|\b(?:failed|failures?|errors?)\s*[:=]\s*0\b"
    r"|(?:失败|错误|异常|未通过)(?:数|个数)?\s*[::]?\s*0(?!\d)|(?<!\d)0\s*(?:个|处|项|条)?\s*(?:失败"
    r"|错误|异常)"
    r"|(?:没有?|未(?:发现|出现|检测到)|无)(?:任何)?(?:失败|错误|异常|报错)",
    re.IGNORECASE,
)
_END_LENGTH = 10_000
"""Characters read of the beginning and of the end of a long result."""
_SHORT_LENGTH, _SHORT_LINES = 400, 3
"""A text of at most so many characters and lines can be a report as a whole."""
_DOCUMENT = re.compile(r"\s*(?:#|```|<[!a-z]|\d+[.)] |[-*] |\||def |class |import |from |function |//)")


def text_failed(text: str) -> str | None:
    """Why a tool's plain text is a failure, in a few words; None for a success."""
    if len(text) > 2 * _END_LENGTH:
        text = f"{text[:_END_LENGTH]}\n{text[-_END_LENGTH:]}"
    codes = [first or second for first, second in _CODE.findall(text)]
    if codes:
        return None if int(codes[-1]) == 0 else f"exit code {codes[-1]}"
    read = _NO_FAILURE.sub(" ", text)
    found = _ANYWHERE.search(read) or _CASELESS.search(read) or _STATUS.search(read)
    if found is None and _is_report(read):
        first = read.strip().split("\n", 1)[0]
        found = _REPORT.search(first) or _CHINESE_REPORT.search(first)
    return None if found is None else f"error text: {found.group().strip()[:60]}"


def _is_report(text: str) -> bool:
    """Short, and not the beginning of a document, a listing or a program."""
    bare = text.strip()
    return len(bare) <= _SHORT_LENGTH and bare.count("\n") < _SHORT_LINES and not _DOCUMENT.match(bare)
