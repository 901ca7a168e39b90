import os, pytest, textwrap
from plugin.conftest import RECORDED
def show(title, r):
    print("##########", title, "exit", r.ret)
def test_many(run, capture, baseline, pytester, monkeypatch):
    capture("ok", rate=10.0); capture("torn", torn=True)
    for t in range(2): capture(f"many/r{t}")
    q="-q", "--no-header"
    pytester.makepyfile(test_m="""
        import pytest
        @pytest.mark.rl_trace("ok")
        def test_marked(rl_trace): pass
        @pytest.mark.rl_trace("torn")
        def test_marked_torn(rl_trace): pass
        @pytest.mark.rl_trace("nope")
        def test_marked_nope(rl_trace): pass
        def test_all(rl_captures): assert all(False for c in rl_captures)
        def test_base(rl_baseline): rl_baseline.check("ttft.p50")
        def test_one(rl_trace): pass
        """)
    show("marker no trace", run(*q))
    show("torn no suite", run("--rl-trace=torn", "--no-rl-suite", *q))
    pytester.makepyfile(test_m="""
        import pytest
        @pytest.mark.rl_trace(path="ok")
        def test_marked(rl_trace): pass
        """)
    show("bad marker", run(*q))
    pytester.makepyfile(test_m="""
        def test_b(rl_baseline): rl_baseline.check("ttft.p50", "nonsense")
        def test_c(rl_baseline): rl_baseline.check("ttft.p50", regression=3)
        def test_d(rl_baseline): rl_baseline.check()
        """)
    show("bad check", run("--rl-trace=ok", "--no-rl-suite", *q))
    pytester.makepyfile(test_m="""
        def test_a(rl_trace): pass
        """)
    show("same base names", run("--rl-trace=many/r0", "--rl-trace=many/r0", "--rl-trace=many", "--collect-only", "--no-rl-suite", *q))
    show("dotdot", run("--rl-trace=many/../ok", "--rl-policy=../strict.toml", *q))
    (pytester.path.parent/"strict.toml").write_text('series="s"')
    show("dotdot", run("--rl-trace=many/../ok", "--rl-policy=../strict.toml", "-v"))
    show("p outside", run("--rl-trace=ok", f"--rl-policy={pytester.path.parent}/strict.toml"))
    (pytester.path/"baselines").mkdir(); (pytester.path/"baselines/s.json").write_text("{}")
    show("bad baseline", run("--rl-trace=ok", *q))
    show("bad baseline update", run("--rl-trace=ok", "--rl-baseline-update", *q))
    show("none", run("--rl-strict", "--rl-report=json:x", *q))
    (pytester.path/"b2").write_text("")
    show("unwritable baseline", run("--rl-trace=ok", "--rl-baseline=b2", "--rl-baseline-update", "--rl-report=json:a.json", *q))
    show("unwritable baseline", run("--rl-trace=ok", "--rl-baseline=b2/c", "--rl-baseline-update", "--rl-report=json:a.json", *q))
    assert 0
