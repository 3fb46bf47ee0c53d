"""What every kind of place makes of its settings."""

from collections.abc import Callable

from headrace.show.notice import Notice

#: Tells one notice. Raises HeadraceError.
Teller = Callable[[Notice], None]
