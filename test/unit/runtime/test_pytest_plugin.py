"""The pytest plugin: tests fail with the errors of reconcilers, webhooks and map functions."""

from __future__ import annotations

import pytest

from cfo.runtime.process import function_errors

pytest_plugins = ["pytester"]

TESTS = """
import pytest

from cfo.runtime.process import function_errors

def reconcile():
    website = {"spec": {}}
    return website.spec

def report(is_bug=True):
    try:
        reconcile()
    except AttributeError as error:
        function_errors.report(error, "reconcile of default/a by controller website", is_bug=is_bug)

@pytest.fixture
def operator_with_a_bug():
    report()

@pytest.fixture
def operator_with_a_bug_at_its_end():
    yield
    report()

def test_bug_and_timeout():
    report()
    report()
    raise TimeoutError("Website default/a was not ready after 10 s")

def test_bug_only():
    report()

def test_other_error_and_failure():
    report(is_bug=False)
    pytest.fail("no Website")

def test_other_error_only():
    report(is_bug=False)

def test_failure_only():
    raise TimeoutError("no operator")

@pytest.mark.function_errors
def test_expected():
    report()

@pytest.mark.function_errors
def test_expected_with_failure():
    report()
    raise TimeoutError("this is shown")

def test_skipped():
    report()
    pytest.skip("a reason")

def test_expected_failure():
    report()
    pytest.xfail("a reason")

def test_bug_in_setup(operator_with_a_bug):
    pass

def test_bug_in_teardown(operator_with_a_bug_at_its_end):
    pass

def test_after_all():
    pass
"""


def summary(result: pytest.RunResult) -> dict[str, str]:
    """Return the outcome and the message of each test in the summary."""
    lines = [line for line in result.outlines if "test_errors.py::" in line and " " in line]
    return {
        line.split("::")[1].split()[0]: f"{line.split()[0]} {line.partition(' - ')[2]}"
        for line in lines
    }


def test_errors_of_functions_fail_the_test_with_their_own_message(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_errors=TESTS)
    monkeypatch.setenv("COLUMNS", "200")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    bug = "AttributeError: 'dict' object has no attribute 'spec'"
    assert summary(result) == {
        "test_bug_and_timeout": f"FAILED {bug}",
        "test_bug_only": f"FAILED {bug}",
        "test_other_error_and_failure": f"FAILED {bug}",
        "test_failure_only": "FAILED TimeoutError: no operator",
        "test_expected_with_failure": "FAILED TimeoutError: this is shown",
        "test_bug_in_setup": f"ERROR {bug}",
        "test_bug_in_teardown": f"ERROR {bug}",
    }
    result.assert_outcomes(failed=5, errors=2, passed=4, skipped=1, xfailed=1)


def test_report_has_the_line_of_the_function_and_the_failure_of_the_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_errors=TESTS)
    result = pytester.runpytest_subprocess("-k", "test_bug_and_timeout", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        [
            ">       return website.spec",
            "E       raised in: reconcile of default/a by controller website; more errors of functions in the log: 1",
            "test_errors.py:7: AttributeError",
            "*failure of the test itself*",
            "E       TimeoutError: Website default/a was not ready after 10 s",
        ]
    )
    assert "pytest_plugin.py" not in result.stdout.str()


FAILING = """
import pytest

from cfo.runtime.process import function_errors

@pytest.fixture
def website():
    function_errors.report_failure("reconcile of default/a by controller website", "Forbidden: in the setup")

def test_failing(website):
    for number in range(6):
        function_errors.report_failure(f"reconcile of default/{number}", f"Forbidden: \\x1b[31m {number}")
    function_errors.report_failure("reconcile of default/3", "Forbidden: again")
    function_errors.report_failure("reconcile of default/4", "Conflict: try again")
    function_errors.report_success("reconcile of default/4")
    raise TimeoutError("Website default/a was not ready after 10 s")

def test_bug():
    function_errors.report_failure("reconcile of default/a", "KeyError: 'a'")
    function_errors.report(KeyError("a"), "reconcile of default/a")

def test_passing(website):
    pass
"""


def test_report_of_a_failed_test_has_the_reconciles_that_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_errors=FAILING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(
        [
            "E       TimeoutError: Website default/a was not ready after 10 s",
            "*failing reconciles*",
            "1 more, and:",
            r"reconcile of default/0: Forbidden: \x1b[[]31m 0",
            r"reconcile of default/1: Forbidden: \x1b[[]31m 1",
            r"reconcile of default/2: Forbidden: \x1b[[]31m 2",
            r"reconcile of default/5: Forbidden: \x1b[[]31m 5",
            "reconcile of default/3: Forbidden: again",
            "*_ test_bug _*",
            "*failing reconciles*",
            "reconcile of default/a: KeyError: 'a'",
        ],
        consecutive=False,
    )


def test_remembered_failures_are_limited() -> None:
    with function_errors.collected() as found:
        for number in range(function_errors.MAX_FAILING + 10):
            function_errors.report_failure(f"reconcile of default/{number}", "Forbidden: no")
    assert len(found.failing) == function_errors.MAX_FAILING
    assert "reconcile of default/9" not in found.failing
