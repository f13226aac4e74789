"""What makes the site from this repository (a hook of mkdocs.yml).

Pages read as they stand, in the repository as on the site. So the hook
- makes README.md the home, and every file of the repository that a page links to a page of the site;
- shows blocks of code that follow each other in several languages as tabs;
- gives what mkdocs-jupyter makes of the gallery the links and the styles of the other pages;
- makes the manual of what ``gmm --help`` says, of the program that GMM_PROGRAM names or that is on the PATH;
- makes a page of the reference for each public module of Python, with all that its ``__all__`` names.
"""

import ast
import importlib.util
import os
import posixpath
import re
import subprocess
import tomllib
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gmm-python/python/gaussmix"
MODULES = {"gaussmix": "__init__.py", "dask": "dask.py", "mpi": "mpi.py", "torch": "torch.py", "jax": "jax.py", "mclust": "mclust/__init__.py", "hmm": "hmm/__init__.py", "deconvolution": "deconvolution/__init__.py", "anndata": "anndata.py", "cluster": "cluster/__init__.py"}
TABS = {"sh": "Program", "python": "Python", "rust": "Rust"}
LANGUAGES = {".py": "python", ".rs": "rust", ".toml": "toml", ".json": "json", ".sh": "sh", ".cff": "yaml"}

FENCE = r"^(?P<ticks>```+)(?P<language>\w*)\n.*?^(?P=ticks)\n"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")


def page_of(path):
    """The page of the site that shows this file of the repository."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def file_of(page):
    """The file of the repository that this page of the site shows as it stands, as far as links in it go."""
    if page == "index.md":
        return "README.md"
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def outside_of_code(text, change):
    """The text with `change` made of what lies between blocks of code."""
    parts, end = [], 0
    for block in re.finditer(FENCE, text, re.M | re.S):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def linked(path):
    """The files of the repository that a page links to."""
    found = []
    outside_of_code((ROOT / path).read_text("utf-8"), lambda text: found.extend(link[1] for link in LINK.finditer(text)) or "")
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in found]


def content_of(path):
    """A page that shows a file of the repository."""
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".md"):
        return text
    return f"# `{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"


def help_of(program, *command):
    """The manual of a command and of its sub-commands, each with a heading."""
    run = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True)
    pages = [f"## {' '.join(['gmm', *command])}\n\n```text\n{run.stdout.strip()}\n```\n"]
    listed = re.search(r"^Commands:\n((?:  .*\n|\n(?=  ))*)", run.stdout, re.M)
    for name in re.findall(r"^  ([a-z][\w-]*)", listed[1] if listed else "", re.M):
        if name != "help":
            pages += help_of(program, *command, name)
    return pages


def manual():
    program = os.environ.get("GMM_PROGRAM", "gmm")
    try:
        pages = help_of(program)
    except OSError as error:
        raise PluginError(f"the manual needs the program: set GMM_PROGRAM to what `cargo build` made ({program}: {error})") from None
    return "\n".join(["# The program `gmm`\n\nWhat `gmm --help` and the `--help` of each command say.\n", *pages])


def reference(name, file):
    """The page of a public module: what it says of itself, and all that it offers."""
    module = "gaussmix" if name == "gaussmix" else f"gaussmix.{name}"
    tree = ast.parse((PACKAGE / file).read_text("utf-8"))
    offered = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__"
    )
    entries = "\n".join(f"::: {module}.{entry}\n" for entry in offered if not entry.startswith("__"))
    return f"# `{module}`\n\n{ast.get_docstring(tree)}\n\n{entries}"


def on_config(config):
    # The repository's address stands in Cargo.toml alone.
    config.repo_url = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["package"].get("repository")
    return config


def on_files(files, config):
    pages = {"manual.md": manual()}
    pages |= {f"api/{name}.md": reference(name, file) for name, file in MODULES.items()}
    waiting = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"]
    waiting += [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path in seen or not (ROOT / path).is_file():
            continue
        seen.add(path)
        if not path.startswith("docs/"):
            pages[page_of(path)] = content_of(path)
        if path.endswith(".md"):
            waiting += linked(path)
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def tabs(text):
    """The page with blocks of code that follow each other in several languages as tabs."""

    def change(run):
        blocks = [(block["language"], block[0]) for block in re.finditer(FENCE, run[0], re.M | re.S)]
        languages = {language for language, _ in blocks}
        same = len(languages) == len(blocks) and languages <= TABS.keys()
        # Not a command that installs what the next block uses.
        if not same or ("sh" in languages and "\ngmm " not in run[0]):
            return run[0]
        indented = [(TABS[language], re.sub("^(?=.)", "    ", block, flags=re.M)) for language, block in blocks]
        return "\n".join(f'=== "{title}"\n\n{block}' for title, block in indented)

    return re.sub(r"(?:^```\w+\n(?:(?!```).*\n)*```\n\n?){2,}", change, text, flags=re.M)


def on_page_markdown(markdown, page, config, files):
    path = file_of(page.file.src_uri)
    if not page.parent:  # it has no neighbours
        page.meta["hide"] = ["navigation"]
    here = posixpath.dirname(page.file.src_uri)

    def link(found):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
        return posixpath.relpath(page_of(target), here or ".") + found[2]

    return tabs(outside_of_code(markdown, lambda text: LINK.sub(link, text)))


def on_page_content(html, page, config, files):
    here = page.file
    if not here.src_uri.startswith("gallery/"):
        return html

    def link(found):
        target = files.get_file_from_path(posixpath.normpath(posixpath.join(posixpath.dirname(here.src_uri), found[1])))
        if target is None:
            raise PluginError(f"{here.src_uri} links to {found[1]}, which is not a page: give its path from docs/gallery/")
        page.links_to_anchors = page.links_to_anchors or {}
        if found[2]:  # mkdocs looks for it when all pages are made
            page.links_to_anchors.setdefault(target, {})[found[2]] = found[0]
        return f'href="{target.url_relative_to(here)}{found[2] and "#" + found[2]}"'

    # Its megabyte of styles and scripts, of which some fetch others from elsewhere, gives way to those of the site.
    html = re.sub(r"<(script|style|clipboard-copy)\b.*?</\1>|<div class=.clipboard-copy-txt.*?</div>", "", html, flags=re.S)
    html = re.sub("<pre>(.*?)</pre>", r"<pre><code>\1</code></pre>", html, flags=re.S).replace("anchor-link", "headerlink")
    return re.sub(r'href="(?![a-z]+:)([^"#]+)#?([^"]*)"', link, html)


def everything(module):
    for member in module.members.values():
        if not member.is_alias:
            yield member
            yield from everything(member)


class Documentation(griffe.Extension):
    """Documentation that griffe does not find or would misunderstand."""

    def on_package(self, *, pkg, **kwargs):
        # The public class of gaussmix._core is documented in its source in Rust.
        source = (ROOT / "gmm-python/src/statistics.rs").read_text("utf-8")
        statistics = pkg["_core.Statistics"]
        for item in [statistics, *everything(statistics)]:
            found = re.search(rf"((?:^ *///.*\n)+)(?:^ *#\[.*\n)*^ *(?:pub )?(?:struct|fn) {item.name}\b", source, re.M)
            if found:
                item.docstring = griffe.Docstring(re.sub("^ */// ?", "", found[1], flags=re.M), parent=item, parser="numpy")
        # Parameters and results without entries have those of one table, and of the summary.
        specification = importlib.util.spec_from_file_location("documentation", PACKAGE / "_documentation.py")
        documentation = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(documentation)
        # "array-like" is no subtraction, the first of several choices is not the default, and roles are those of Sphinx.
        for item in everything(pkg):
            if item.is_function and not item.docstring and item.parent.is_class and not item.name.startswith("_"):
                # An overriding method without documentation has that of the method that it overrides.
                of_bases = (base.members.get(item.name) for base in item.parent.mro())
                found = next((base.docstring for base in of_bases if base is not None and base.docstring), None)
                item.docstring = found and griffe.Docstring(found.value, parent=item)
            if item.docstring:
                function = item if item.is_function else item.members.get("__init__") if item.is_class else None
                parameters = [] if function is None or not function.is_function else function.parameters
                stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
                parameters = [parameter for parameter in parameters if parameter.name not in ("self", "cls")]
                names = {stars.get(parameter.kind, "") + parameter.name: str(parameter.default) for parameter in parameters}
                if item.is_class:  # estimators on workers have parameters by a decorator
                    workers = (re.match(r'on_workers\(.(\w+)', str(decorator.value)) for decorator in item.decorators)
                    names |= {name: "None" for found in workers if found for name in (found[1], "partition_rows", "resident")}
                returns = documentation.type_of(str(item.returns)) if item.is_function and item.returns else None
                text = documentation.filled(item.docstring.value, names, returns)
                text = re.sub(r"\b(array|path)-like\b", "\\1\N{NON-BREAKING HYPHEN}like", text)
                text = re.sub(r"^(\s*\w+ : )\{(.*)\}", r"\1one of \2", text, flags=re.M)
                item.docstring.value = re.sub(":[a-z]+:(?=`)", "", text)
