"""Folded stacks: what is hot, and how much of it is the kernel's."""

from __future__ import annotations

import pytest

from headrace.base.errors import StoreError
from headrace.host.stacks import parse, profile

FOLDED = """\
mariadbd;start_thread;do_command;MYSQLparse 10
mariadbd;start_thread;do_command;row_search_mvcc(unsigned char*);btr_cur_t::search_leaf;buf_page_get_gen 20
mariadbd;start_thread;do_command;mtr_t::commit();log_t::append;ssux_lock_impl<true>::wr_wait;do_futex_[k] 30
mariadbd;start_thread;recurse;recurse;recurse 5
swapper;start_kernel_[k];cpu_idle_[k] 35
"""


def test_hot_functions_and_shares() -> None:
    found = profile(parse(FOLDED))
    by_name = {function.name: function for function in found.functions}
    assert found.samples == 100
    assert found.functions[0].name == "cpu_idle_[k]"
    assert found.functions[0].is_kernel
    assert (by_name["do_command"].self_samples, by_name["do_command"].total_samples) == (0, 60)
    assert (by_name["recurse"].self_samples, by_name["recurse"].total_samples) == (5, 5)
    assert found.kernel_share == 0.65
    assert found.named_share == 1


def test_the_number_of_functions_is_limited() -> None:
    assert len(profile(parse(FOLDED), most=2).functions) == 2


def test_nothing_is_no_share() -> None:
    found = profile(parse("\n"))
    assert found.samples == 0
    assert found.kernel_share is None
    assert found.functions == ()


@pytest.mark.parametrize("line", ["nothing", "a;b -1", "a;b 1.5", " 5", "a;b \u0663"])
def test_what_is_no_stack_is_refused(line: str) -> None:
    with pytest.raises(StoreError, match="folded"):
        parse(f"a;b 1\n{line}\n")
