"""The pytest plugin: tests fail with the errors of reconcilers, webhooks and map functions."""

from __future__ import annotations

import pytest

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
