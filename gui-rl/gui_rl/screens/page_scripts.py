"""JavaScript functions that run in a page, used by every browser driver."""

from __future__ import annotations

NOTICE_LEAVING = "addEventListener('beforeunload', () => { window.__leaving = true; });"
SETTLED = """() => new Promise((done) => setTimeout(
  () => done(!window.__leaving && document.readyState === 'complete'), 0))"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
VIEW = """() => { const root = document.scrollingElement || document.documentElement;
  return [scrollX, scrollY, innerWidth, innerHeight, root.scrollHeight]; }"""
EDITING = """() => { const one = document.activeElement;
  return !!one && (one.isContentEditable || one.matches(
  'textarea, input:not([type=checkbox], [type=radio], [type=button], [type=submit], [type=range])')); }"""
READ = "([selector, name]) => [...document.querySelectorAll(selector)].map((one) => one[name])"
