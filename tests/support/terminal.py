"""A terminal as most are today: it wraps long lines, and wraps them anew when its width changes."""

from __future__ import annotations

import io
import re

PARTS = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([^\x1b])", re.DOTALL)


class Row:
    """One row of cells."""

    def __init__(self, text: str = "", *, goes_on: bool = False) -> None:
        self.text = text
        self.goes_on = goes_on
        """Whether the line was too long and goes on in the next row."""


class Terminal(io.StringIO):
    """Write to it what a program writes, resize it, and look at what a person sees."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.width, self.height = width, height
        self._rows = [Row()]
        self._row = self._column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for arguments, command, letter in PARTS.findall(text):
            if letter:
                self._put(letter)
            else:
                self._obey(command, arguments)
        return len(text)

    def resize(self, width: int) -> None:
        """Change the width; the cursor stays behind what was written last."""
        lines, self.width = self._lines(), width
        rows = []
        for line in lines:
            parts = [line[at : at + width] for at in range(0, max(1, len(line)), width)]
            rows += [Row(part, goes_on=part is not parts[-1]) for part in parts]
        self._rows, self._row, self._column = rows, len(rows) - 1, len(rows[-1].text)

    def visible(self) -> list[str]:
        """The rows on the screen, without those that are empty."""
        return [row.text.rstrip() for row in self._rows[self._top :] if row.text.strip()]

    @property
    def _top(self) -> int:
        return max(0, len(self._rows) - self.height)

    def _lines(self) -> list[str]:
        lines = [""]
        for row in self._rows:
            lines[-1] += row.text
            if not row.goes_on:
                lines.append("")
        return lines[:-1]

    def _put(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._next_row()
        else:
            if self._column == self.width:
                self._rows[self._row].goes_on = True
                self._next_row()
            row = self._rows[self._row]
            row.text = row.text.ljust(self._column)[: self._column] + letter + row.text[self._column + 1 :]
            self._column += 1

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append(Row())

    def _obey(self, command: str, arguments: str) -> None:
        if command == "A":
            self._row = max(self._top, self._row - int(arguments or 1))
        elif (command, arguments) == ("K", "2"):
            self._rows[self._row] = Row()
        elif (command, arguments) == ("J", "2"):
            self._rows[self._top :] = [Row() for _ in self._rows[self._top :]]
        elif (command, arguments) == ("H", ""):
            self._row, self._column = self._top, 0
        elif command not in "mhl":  # colours and the cursor change nothing here
            raise AssertionError(f"this terminal does not know {arguments}{command}")
