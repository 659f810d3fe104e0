"""Commands of the README and the pages exist, with their options."""

import re
import shlex

import pytest
import typer

from pages import FENCE, PAGES, ROOT, blocks
from wideangle.cli import app
from wideangle.registry import FAMILIES, estimator_of

OFFERED = [option for name in FAMILIES for option in estimator_of(name).presentation.options]
CHOICES = {
    flag: {choice for option in OFFERED if option.flag == flag for choice in option.choices}
    for flag in (option.flag for option in OFFERED)
}


def commands(text):
    """Commands in shell blocks and in inline code, with a place to look at."""
    for language, code, line in blocks(text):
        if language in ("sh", "console"):
            whole = code.replace("\\\n", "")  # a backslash continues a command on the next line
            for number, one in enumerate(whole.splitlines(), line + 1):
                if language == "sh" or one.startswith("$ "):
                    yield one.removeprefix("$ "), number
    for match in re.finditer(r"(?<!`)`((?:wideangle|make)\s[^`]+)`", FENCE.sub("", text)):
        if "|" not in match[1] and "COMMAND" not in match[1]:
            yield " ".join(match[1].split()), match[1]


def fault(line):
    """What is wrong with a command, or None; other programs are not looked at."""
    words = shlex.split(line, comments=True)
    if words[:3] == ["python", "-m", "wideangle"]:
        words = words[2:]
    if words[:1] == ["make"]:
        return fault_of_make(words[1:])
    return fault_of_ours(words[1:]) if words[:1] == ["wideangle"] else None


def fault_of_make(words):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    unknown = [word for word in words if "=" not in word and word not in targets]
    return f"no target {unknown[0]}" if unknown else None


def fault_of_ours(words):
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
    given = [p for p in command.params if p.param_type_name == "option"]
    options = {name: p for p in given for name in (*p.opts, *p.secondary_opts)}
    takes_arguments = len(given) < len(command.params)
    words = iter(words)
    for word in words:
        if word.startswith("-") and word not in (*options, "--help", "-h"):
            return f"no option {word}"
        if word in options and not options[word].is_flag:
            value, choices = next(words, None), CHOICES.get(word)
            if value is None:
                return f"{word} has no value"
            if choices and value not in choices:
                return f"{word} is never {value}"
        elif not word.startswith("-") and not takes_arguments:
            return f"{word} is too much"
    return None


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_commands_exist_with_their_options(path):
    found = [(where, fault(c)) for c, where in commands(path.read_text(encoding="utf-8"))]
    assert [one for one in found if one[1]] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("wideangle train moe data.csv --target y -o run  # a comment", None),
        ("wideangle trian moe data.csv", "no command trian"),
        ("wideangle train mow data.csv", "no command mow"),
        ("wideangle train moe data.csv --tarket y", "no option --tarket"),
        ("wideangle train moe data.csv --prior dirichlet", "--prior is never dirichlet"),
        ("wideangle train moe data.csv --target", "--target has no value"),
        ("wideangle datasets --json", None),
        ("python -m wideangle demo now", "now is too much"),
        ("make demo", None),
        ("make PYTHON=python3.12 tea", "no target tea"),
        ("head -n 3 predicted.csv", None),
    ],
)
def test_a_wrong_command_is_found(line, wrong):
    assert fault(line) == wrong


def test_commands_are_seen_in_blocks_and_in_lines():
    lines = "`make demo`, `wideangle\ndemo`\n\n```sh\nmake \\\ndocs\n```\n\n"
    text = lines + "```console\n$ ls\nout\n```\n"
    assert [c for c, _ in commands(text)] == ["make docs", "ls", "make demo", "wideangle demo"]
