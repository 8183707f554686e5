"""Commands of the shell of any size, each with many of one of its constructs."""

from __future__ import annotations

from tests.linear.case import Make

__all__ = ["SHELL_COMMANDS"]

SHELL_COMMANDS: dict[str, Make] = {
    "one word": lambda size: "echo " + "x" * size,
    "words": lambda size: " ".join(f"w{n}" for n in range(size // 6)),
    "paths": lambda size: " ".join(f"a/b{n}/../c" for n in range(size // 12)),
    "globs": lambda size: " ".join(f"f*{n}" for n in range(size // 7)),
    "dotted globs": lambda size: " ".join(f".{n}f*" for n in range(size // 8)),
    "stars": lambda size: " ".join(f".*a*{n}*b" for n in range(size // 11)),
    "deep globs": lambda size: " ".join("*/" * (n % 8) + f"w{n}*" for n in range(size // 14)),
    "braces": lambda size: "echo " + "p" * (size // 2) + "{" + "x," * (size // 4) + "}",
    "many braces": lambda size: " ".join(f"p{n}" + "{a,b,c}" for n in range(size // 13)),
    "open braces": lambda size: "{" * size,
    "quotes": lambda size: "echo " + "'a'" * (size // 3) + " $",
    "open quote": lambda size: "echo '" + "a" * size,
    "folders": lambda size: " ".join(f"cd d{n}; cat {n}.key;" for n in range(size // 20)),
    "upwards": lambda size: " ".join(f"../{n}" for n in range(size // 8)),
    "blanks": lambda size: "echo " + (" " * 31 + "\t" * 7) * (size // 38) + "x",
    "empty lines": lambda size: "\n " * (size // 2),
    "odd characters": lambda size: "\u202e" * size,
    "classes": lambda size: "ls " + "[a-z]" * (size // 5),
    "open classes": lambda size: "ls " + "[" * size,
    "home": lambda size: "~ " * (size // 2),
    "workspace": lambda size: "$PWD " * (size // 5),
    "secret names": lambda size: " ".join(f"client-secret-{n}.json" for n in range(size // 22)),
    "brackets": lambda size: "ls " + "[a,]" * (size // 4),
    "open collations": lambda size: "ls " + "[[:" * (size // 3),
    "named classes": lambda size: "ls " + "[[:x:]]" * (size // 7),
    "nested braces": lambda size: "ls " + "{" * (size // 2) + "a,b" + "}" * (size // 2),
    "literal braces": lambda size: "ls " + "{a}" * (size // 3) + ",",
    "words with braces": lambda size: " ".join(f"{{a{n},b}}{{c,d}}e" for n in range(size // 16)),
    "ranges": lambda size: "ls " + "{1..9}" * (size // 6),
    "here documents": lambda size: "".join(f"<<A{n}\n" for n in range(size // 8)),
    "double quotes": lambda size: '"$(' * (size // 3),
    "backquotes": lambda size: '`"' * (size // 2),
    "coded characters": lambda size: "$'" * (size // 2),
    "comments": lambda size: " #" * (size // 2),
    "changed folders": lambda size: " ".join(f"cd .g{n}*; ls b{n}/*;" for n in range(size // 22)),
    "pairs": lambda size: " ".join(f".config/ m{n}*/x" for n in range(size // 18)),
    "dotless globs": lambda size: " ".join(f"[m]{n}*" for n in range(size // 9)),
}
