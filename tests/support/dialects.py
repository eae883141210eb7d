"""Actions and pictures for the tests of the dialects."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from distrl.policies.dialects.base import LONGEST_TEXT, Screen
from distrl.policies.dialects.parsing import Direction, scroll
from distrl.types import Action, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

PICTURE = Screen(width=1080, height=2400)

shares = st.floats(0.0, 1.0, exclude_max=True)
words = st.text(max_size=40) | st.text("a\"'\\\n\r\t{}()[]<|> ,:;nt", max_size=20)
screens = st.builds(Screen, width=st.integers(1, 4000), height=st.integers(1, 4000))
scrolls = st.builds(scroll, st.sampled_from(get_args(Direction)), st.none() | st.tuples(shares, shares))
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(Tap, shares, shares),
    st.builds(LongPress, shares, shares),
    st.builds(Swipe, shares, shares, shares, shares),
    scrolls,
    st.builds(TypeText, words),
    st.builds(Press, st.sampled_from(("back", "home", "enter"))),
    st.just(Wait()),
    st.builds(Finish, st.sampled_from(("complete", "impossible")), words),
)
"""Everything that a policy can do, on the screen."""
longest_text = "\x01" * LONGEST_TEXT
"""As much as an action may say, in the characters that take most to escape."""
