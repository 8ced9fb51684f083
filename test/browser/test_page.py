"""The page in a real browser: what it shows, with hostile objects as well, its accessibility, and its speed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from cfo.api.appwrapper.names import APPWRAPPER
from cfo.api.flux.names import FLUX_SETUP
from cfo.api.raycluster.names import RAY_CLUSTER
from cfo.runtime import NETWORK_POLICY, SECRET, rfc3339
from cfo.summaries.kind_view import Related
from cfo.summaries.summary import Level, Problem, SummaryCondition, WarningEvent
from test.support.dashboard_server import Dashboard, running_dashboard
from test.support.dashboards import FakeInformer, FakeOverview, job, samples, summary

pytestmark = pytest.mark.browser

HOSTILE = '"><img src=x onerror="document.title=1"><script>document.title=1</script>'
CONTROLLERS = [
    {
        "name": name,
        "total": 420 + 37 * index,
        "errors": index % 3,
        "depth": index % 2,
        "active": 0,
        "mean": 0.0042 * (index + 1),
    }
    for index, name in enumerate(
        ("appwrapper", "fluxjob", "minicluster", "raycluster-ingress", "raycluster-mtls")
    )
]

OVERLAPS = """[...document.querySelectorAll(".events li, .lane, .problems li")].filter((line) => {
    const boxes = [...line.children].map((each) => each.getBoundingClientRect());
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return boxes.some((a, index) => boxes.slice(index + 1).some((b) => meet(a, b)));
}).map((line) => line.textContent)"""
"""The lines of lists in which one text covers another."""


@asynccontextmanager
async def opened(
    browser: Any,
    dashboard: Dashboard,
    *,
    width: int = 1280,
    scheme: str = "light",
    fragment: bool = True,
) -> AsyncIterator[Any]:
    """Open the page; it must not log an error, and must not request anything of another server."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if "Policy" in message.text else None
    )
    page.on(
        "request",
        lambda sent: (
            errors.append(sent.url) if not sent.url.startswith(dashboard.address) else None
        ),
    )
    await page.goto(dashboard.url if fragment else dashboard.address)
    if fragment:
        await page.wait_for_selector("#content:not([hidden])")
    yield page
    assert errors == []
    assert await page.title() == "CodeFlare dashboard"
    await context.close()


async def assert_accessible(page: Any) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.async_playwright", reason="axe is not installed"
    )
    found = await axe.Axe().run(page)
    assert [
        (rule["id"], rule["nodes"][0]["html"][:200]) for rule in found.response["violations"]
    ] == []


async def assert_fits(page: Any) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "the page scrolls sideways"
    )


def sample_overview(count: int) -> FakeOverview:
    return FakeOverview(samples(count))


async def advance_queue(overview: FakeOverview, page: Any) -> None:
    """Let jobs of the first queue change their order, so that the chart has a history."""
    created = rfc3339(datetime.now(UTC))
    for order in ("batch-score tune-llama sweep ablation", "tune-llama sweep batch-score ablation"):
        await page.wait_for_timeout(700)
        overview.put(
            *(
                job(0, "ml-research", name, position, created)
                for position, name in enumerate(order.split(), 1)
            )
        )
    await page.wait_for_timeout(1000)


@pytest.mark.parametrize(
    ("name", "count", "width", "scheme"),
    [
        ("empty", 0, 1280, "light"),
        ("20", 20, 1280, "light"),
        ("20-dark", 20, 1280, "dark"),
        ("20-narrow", 20, 400, "light"),
        ("20-narrow-dark", 20, 400, "dark"),
        ("500", 500, 1280, "light"),
    ],
)
async def test_page_is_accessible_and_fits(
    browser: Any, screenshots: Path, name: str, count: int, width: int, scheme: str
) -> None:
    overview = sample_overview(count)
    async with (
        running_dashboard(overview, controllers=lambda: CONTROLLERS) as dashboard,
        opened(browser, dashboard, width=width, scheme=scheme) as page,
    ):
        if count:
            await advance_queue(overview, page)
            legend = await page.text_content("#appwrappers .legend")
            assert legend.startswith("SuspendedResumingRunning, Succeeded (end)"), (
                "each phase has its colour"
            )
            assert await page.evaluate(OVERLAPS) == []
        assert await page.text_content("#rayclusters .count") == str(count)
        if count == 500:
            assert await page.locator("#problems li").count() == 6
            await page.click("#all-problems")
            assert await page.locator("#problems li").count() == int(
                await page.text_content("#problem-count")
            )
            await page.click("#all-problems")
        await assert_accessible(page)
        await assert_fits(page)
        await page.screenshot(path=screenshots / f"page-{name}.png", full_page=True)


async def test_lost_connection_is_shown_and_the_state_stays(
    browser: Any, screenshots: Path
) -> None:
    overview = sample_overview(5)
    async with running_dashboard(overview) as dashboard:
        port = int(dashboard.address.rpartition(":")[2])
        async with opened(browser, dashboard) as page:
            await page.wait_for_selector("#connection:text('Live')")
            token = dashboard.token
            await dashboard.stop()
            await page.wait_for_selector("#connection:text('Connection lost')")
            assert "shows the last known state" in await page.text_content("#notice")
            assert await page.text_content("#rayclusters .count") == "5"
            await assert_accessible(page)
            await page.screenshot(path=screenshots / "page-lost.png")
            async with running_dashboard(sample_overview(6), port=port, token=token):
                await page.wait_for_selector("#connection:text('Live')")
                await page.wait_for_selector("#rayclusters .count:text-is('6')")
                assert await page.is_hidden("#notice")


async def test_token_is_requested_if_it_is_missing(browser: Any, screenshots: Path) -> None:
    async with (
        running_dashboard(sample_overview(1)) as dashboard,
        opened(browser, dashboard, fragment=False) as page,
    ):
        await page.wait_for_selector("#sign-in:not([hidden])")
        await assert_accessible(page)
        await page.screenshot(path=screenshots / "page-sign-in.png")
        await page.fill("#token", dashboard.token)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#content:not([hidden])")
        assert await page.is_hidden("#sign-in")


async def test_token_does_not_stay_in_the_address(browser: Any) -> None:
    async with (
        running_dashboard(sample_overview(1)) as dashboard,
        opened(browser, dashboard) as page,
    ):
        assert page.url == f"{dashboard.address}/"
        await page.reload()
        await page.wait_for_selector("#content:not([hidden])")


async def test_missing_permissions_are_shown(browser: Any, screenshots: Path) -> None:
    missing = [
        FakeInformer(gvk, "forbidden", is_forbidden=True)
        for gvk in (RAY_CLUSTER, FLUX_SETUP, SECRET)
    ]
    overview = FakeOverview([summary(APPWRAPPER, "job", state="Running")], missing)
    async with running_dashboard(overview) as dashboard, opened(browser, dashboard) as page:
        assert "RayCluster: permission to list and watch is missing" in await page.text_content(
            "#kinds"
        )
        assert "Secret" in await page.text_content("#footer")
        await assert_accessible(page)
        await page.screenshot(path=screenshots / "page-forbidden.png")


async def test_strings_of_objects_are_never_parsed_as_html(browser: Any) -> None:
    hostile = summary(
        name=HOSTILE,
        namespace=HOSTILE,
        state=HOSTILE,
        ready=HOSTILE,
        level=Level.FAILED,
        facts=(
            ("dashboard", "javascript:alert(1)"),
            ("mTLS", "https://user:pass@evil.example/" + HOSTILE),
            (HOSTILE, HOSTILE),
        ),
        problems=(Problem(HOSTILE, HOSTILE),),
        conditions=(SummaryCondition(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        warnings=(WarningEvent(HOSTILE, HOSTILE, "2026-01-01T00:00:00Z", 2),),
    )
    setup = summary(FLUX_SETUP, HOSTILE, namespace=HOSTILE, ready="1/2", state=HOSTILE)
    waiting = job(0, HOSTILE, HOSTILE, 1, "2026-01-01T00:00:00Z")
    overview = FakeOverview([hostile, setup, waiting, summary(APPWRAPPER, HOSTILE, state=HOSTILE)])
    running = running_dashboard(overview, controllers=lambda: [{**CONTROLLERS[0], "name": HOSTILE}])
    async with running as dashboard, opened(browser, dashboard) as page:
        await page.click("#rayclusters button.open")
        await page.wait_for_selector("#detail-body dl")
        assert HOSTILE in await page.text_content("#detail-body")
        assert await page.locator("img, main script").count() == 0
        query = "[...document.querySelectorAll('main a, dialog a')].map((a) => [a.protocol, a.rel])"
        links = await page.evaluate(query)
        assert {protocol for protocol, _ in links} <= {"http:", "https:"}
        assert all("noopener" in rel for protocol, rel in links if protocol == "https:")


async def test_page_is_usable_with_the_keyboard(browser: Any, screenshots: Path) -> None:
    overview = sample_overview(20)
    async with running_dashboard(overview) as dashboard, opened(browser, dashboard) as page:
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.className") == "skip"
        await page.focus("#rayclusters tbody tr:nth-child(1) button")
        name = await page.evaluate("document.activeElement.textContent")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#detail[open] dl")
        assert name in await page.text_content("#detail-title")
        await assert_accessible(page)
        await page.screenshot(path=screenshots / "page-detail.png")
        await page.keyboard.press("Escape")
        assert await page.evaluate("document.activeElement.textContent") == name
        failed = next(each for each in overview.summaries.values() if each.key.name == name)
        fields = {"namespace": failed.key.namespace, "uid": failed.uid, "level": Level.FAILED}
        overview.put(summary(name=name, state="still failed", **fields))
        await page.wait_for_selector("#rayclusters >> text=still failed")
        assert await page.evaluate("document.activeElement.textContent") == name, (
            "an update keeps the focus"
        )
        await page.focus("#rayclusters thead th:nth-child(1) button")
        await page.keyboard.press("Enter")
        assert (
            await page.get_attribute("#rayclusters thead th:nth-child(1)", "aria-sort")
            == "ascending"
        )
        names = await page.locator("#rayclusters tbody th button").all_text_contents()
        assert names == sorted(names)
        await page.fill("#filter", "embeddings")
        await page.wait_for_selector("#rayclusters .count:text-is('2 of 20')")


async def test_sections_fold_and_stay_so(browser: Any) -> None:
    overview = sample_overview(20)
    async with (
        running_dashboard(overview, controllers=lambda: CONTROLLERS) as dashboard,
        opened(browser, dashboard) as page,
    ):
        await page.wait_for_selector(
            "#controllers .count:text-matches('5, 4 errors in 2,470 reconciles, 2 queued')"
        )
        assert await page.is_hidden("#controllers table"), "controllers that work are one line"
        assert await page.is_visible("#certificates table"), "two certificates expire soon"
        await page.click("#controllers button.fold")
        await page.click("#appwrappers button.fold")
        await page.reload()
        await page.wait_for_selector("#controllers table")
        assert await page.is_hidden("#appwrappers .lane >> nth=0")
        assert await page.get_attribute("#appwrappers button.fold", "aria-expanded") == "false"
        await assert_accessible(page)


async def test_details_show_pods_and_children(browser: Any, screenshots: Path) -> None:
    overview = sample_overview(1)
    key = next(iter(overview.summaries.values())).key
    pod = {"metadata": {"name": f"{key.name}-head"}, "status": {"phase": "Running"}}
    overview.related[key] = Related(
        pods=[pod], children={NETWORK_POLICY: [{"metadata": {"name": "head-policy"}}]}
    )
    async with running_dashboard(overview) as dashboard, opened(browser, dashboard) as page:
        await page.click("#rayclusters button.open")
        await page.wait_for_selector("#detail-body code")
        shown = await page.text_content("#detail-body")
        for expected in (
            f"{key.name}-headRunning",
            "NetworkPolicyhead-policy",
            "kubectl logs --namespace",
        ):
            assert expected in shown
        await assert_accessible(page)
        await page.screenshot(path=screenshots / "page-pods.png")


async def test_theme_can_be_chosen(browser: Any) -> None:
    async with (
        running_dashboard(sample_overview(1)) as dashboard,
        opened(browser, dashboard) as page,
    ):
        light = await page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
        await page.select_option("#theme", "dark")
        dark = await page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
        assert light != dark
        await page.reload()
        assert (
            await page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
            == dark
        )


async def test_updates_of_500_clusters_are_quick_and_touch_only_their_rows(browser: Any) -> None:
    overview = sample_overview(500)
    async with running_dashboard(overview) as dashboard, opened(browser, dashboard) as page:
        await page.wait_for_selector("#rayclusters .count:text-is('500')")
        await page.evaluate(
            """() => {
                window.touched = new Set(); window.longest = 0;
                new MutationObserver((changes) => changes.forEach((change) => {
                    const row = (change.target.closest ?? (() => null)).call(change.target, "tr");
                    if (row) window.touched.add(row);
                })).observe(document.querySelector("#rayclusters tbody"), { childList: true, subtree: true });
                new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
                    window.longest = Math.max(window.longest, entry.duration);
                })).observe({ type: "longtask" });
            }"""
        )
        clusters = [each for each in overview.summaries.values() if each.gvk == RAY_CLUSTER]
        for round_number in range(10):
            for each in clusters[round_number * 10 : round_number * 10 + 10]:
                fields = {
                    "namespace": each.key.namespace,
                    "uid": each.uid,
                    "level": each.level,
                    "state": each.state,
                }
                overview.put(summary(name=each.key.name, ready=f"{round_number}/9", **fields))
            await anyio.sleep(0.1)
        await page.wait_for_timeout(600)
        shown = await page.locator("#rayclusters tbody tr").count()
        touched, longest = await page.evaluate("[window.touched.size, window.longest]")
        assert shown == 25
        assert touched <= 25
        assert longest < 250, f"an update blocked the page for {longest} ms"
