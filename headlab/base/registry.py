"""Plugins by name: the files of a plugin folder, what packages announce as entry points, and what users add."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import warnings
from collections.abc import Callable, Collection
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from headlab.base.errors import PluginError, unknown_name

P = TypeVar("P")


class Registry(Generic[P]):
    """The plugins of one kind by name: labels, scores, tasks or metrics.

    A file `minimal_pairs.py` of the folder of `package` is the plugin `minimal-pairs` where `hyphenated`, else
    `minimal_pairs`; look-ups accept both spellings. Files in subfolders, files that start with an underscore and those
    named in `besides` are no plugins. `fits` says whether an object is a plugin of this kind; a plugin has a `name`.
    Other packages announce theirs under an entry point of the group `package`, named like the plugin; `add` takes
    one's own. Nothing is imported until a plugin is asked for.
    """

    def __init__(
        self,
        package: str,
        noun: str,
        fits: Callable[[Any], bool],
        *,
        besides: Collection[str] = (),
        hyphenated: bool = False,
    ) -> None:
        self.package = package
        self.noun = noun
        self.fits = fits
        self._besides = besides
        self._hyphenated = hyphenated
        self._added: dict[str, P] = {}
        self._folder = Path(__file__).parent.parent.joinpath(*package.split(".")[1:])

    def built_in(self) -> list[str]:
        """Names of the plugins that come with headlab, sorted."""
        return list(self._built_in)

    @cached_property
    def _built_in(self) -> tuple[str, ...]:
        files = [info.name for info in pkgutil.iter_modules([str(self._folder)]) if not info.ispkg]
        own = (file for file in files if not file.startswith("_") and file not in self._besides)
        return tuple(sorted(map(self._public, own)))

    def names(self) -> list[str]:
        """All plugin names, sorted: built in, announced by other packages, and added."""
        return sorted({*self.built_in(), *self._announced(), *self._added})

    def load(self, name: str) -> P:
        """The plugin of that name.

        Raises UsageError, with the closest name and the list, where there is none; PluginError where another package
        announces one that cannot be used.
        """
        public = self._public(name)
        if public in self._added:
            return self._added[public]
        if public in self.built_in():
            module = importlib.import_module(f"{self.package}.{public.replace('-', '_')}")
            return self._of_module(module, public)
        if public in (announced := self._announced()):
            return self._of_entry_point(announced[public])
        raise unknown_name(self.noun, name, self.names())

    def working(self) -> dict[str, P]:
        """Every plugin that can be loaded, by name; a broken one of another package is named in a warning."""
        broken = self.broken()
        for reason in broken.values():
            warnings.warn(reason, stacklevel=2)
        hidden = self.built_in()
        return {name: self.load(name) for name in self.names() if name in hidden or name not in broken}

    def broken(self) -> dict[str, str]:
        """Entry points of other packages that cannot be used: name -> what is wrong, in a sentence."""
        found = {}
        for name, point in _entry_points(self.package).items():
            if self._public(name) in self.built_in():
                found[self._public(name)] = f"{_origin(point)} has the name of a {self.noun} that comes with headlab."
                continue
            try:
                self._of_entry_point(point)
            except PluginError as error:
                found[self._public(name)] = error.cause
        return found

    def add(self, plugin: P) -> P:
        """Make a plugin known by its name; returns it. One that was added before under the same name is replaced.

        Raises PluginError for an object that is no plugin of this kind and for a name that is taken.
        """
        name = getattr(plugin, "name", None)
        if not isinstance(name, str) or not name or not self.fits(plugin):
            raise PluginError(f"{plugin!r} is no {self.noun}.", f"See headlab.testing.check_{self.noun}.")
        self.refuse_name(plugin)
        self._added[self._public(name)] = plugin
        return plugin

    def refuse_name(self, plugin: P) -> None:
        """Raise PluginError where the name of a plugin is that of a built-in one or of another package's."""
        name: str = plugin.name  # type: ignore[attr-defined]
        if self._public(name) in self.built_in():
            raise PluginError(f"A {self.noun} named {name!r} comes with headlab.", "Give it another name.")
        if self._public(name) in self._announced():
            raise PluginError(f"Another package brings a {self.noun} named {name!r}.", "Give it another name.")

    def discard(self, name: str) -> None:
        """Forget a plugin that was added; nothing happens where there is none of that name."""
        self._added.pop(self._public(name), None)

    def plugins_of(self, module: ModuleType) -> list[P]:
        """The plugins of this kind among the public names of a module; of classes, those that it defines itself."""
        found: dict[int, P] = {}
        for name, value in vars(module).items():
            if name.startswith("_") or not self.fits(value):
                continue
            if isinstance(value, type) and value.__module__ != module.__name__:
                continue
            if isinstance(getattr(value, "name", None), str):
                found[id(value)] = value
        return list(found.values())

    def known(self) -> list[P]:
        """The built-in plugins whose files have been imported."""
        files = (f"{self.package}.{name.replace('-', '_')}" for name in self.built_in())
        return [plugin for file in files if file in sys.modules for plugin in self.plugins_of(sys.modules[file])]

    def file(self, name: str) -> str | None:
        """Path of a built-in plugin's file below the folder that headlab lies in; None for others."""
        public = self._public(name)
        if public in self._added or public not in self.built_in():
            return None
        return f"{self.package.replace('.', '/')}/{public.replace('-', '_')}.py"

    def summary(self, name: str) -> str:
        """One line about a plugin: the first of its file's docstring, or its `text` where it has no file here."""
        plugin = self.load(name)
        if self.file(name) is None:
            return str(getattr(plugin, "text", ""))
        module = sys.modules[f"{self.package}.{self._public(name).replace('-', '_')}"]
        return (module.__doc__ or "").split("\n")[0]

    def _public(self, name: str) -> str:
        return name.replace("_", "-") if self._hyphenated else name.replace("-", "_")

    def _announced(self) -> dict[str, EntryPoint]:
        """Entry points by public name, without those that a built-in plugin hides."""
        hidden = self.built_in()
        points = {self._public(name): point for name, point in _entry_points(self.package).items()}
        return {name: point for name, point in points.items() if name not in hidden}

    def _of_module(self, module: ModuleType, public: str) -> P:
        for plugin in self.plugins_of(module):
            if self._public(plugin.name) == public:  # type: ignore[attr-defined]
                return plugin
        raise PluginError(f"{module.__file__} has no {self.noun} named {public!r}.", "Name it like its file.")

    def _of_entry_point(self, point: EntryPoint) -> P:
        try:
            plugin = point.load()
        except Exception as error:  # whatever the other package does when it is imported
            raise PluginError(
                f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}.",
                "Repair or uninstall that package.",
            ) from error
        if isinstance(plugin, ModuleType):
            return self._of_module(plugin, self._public(point.name))
        if not self.fits(plugin):
            raise PluginError(f"{_origin(point)} is no {self.noun}.", "Repair or uninstall that package.")
        if self._public(str(getattr(plugin, "name", ""))) != self._public(point.name):
            raise PluginError(
                f"{_origin(point)} gives the {self.noun} {getattr(plugin, 'name', None)!r}.",
                "An entry point is named like its plugin.",
            )
        return plugin


def plugins_of_file(path: str | Path, registries: Collection[Registry]) -> list[Any]:
    """Import a file and add every plugin in it to the registry that it fits; returns them.

    Raises PluginError, naming the file, where it cannot be imported, holds no plugin, or takes a name that is taken.
    """
    path = Path(path)
    name = f"headlab_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginError(f"The plugin file {path} is no Python file that can be read.", "Give the path of a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever somebody's file does when it is imported
        del sys.modules[name]
        raise PluginError(
            f"The plugin file {path} cannot be imported: {type(error).__name__}: {error}.", "Correct the file."
        ) from error
    imported = {id(value) for registry in registries for value in registry.known()}
    found = [
        (registry, plugin)
        for registry in registries
        for plugin in registry.plugins_of(module)
        if id(plugin) not in imported
    ]
    if not found:
        nouns = ", ".join(registry.noun for registry in registries)
        raise PluginError(f"The plugin file {path} holds no plugin.", f"Define one of: {nouns}.")
    for registry, plugin in found:
        try:
            registry.refuse_name(plugin)
        except PluginError as error:
            raise PluginError(f"The plugin file {path} cannot be used. {error.cause}", error.remedy) from None
    return [registry.add(plugin) for registry, plugin in found]


def _origin(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist is not None else ""
    return f"The entry point {point.name!r} ({point.value}){package}"


def _entry_points(group: str) -> dict[str, EntryPoint]:
    return _entry_points_on(group, tuple(sys.path))


@lru_cache(maxsize=64)
def _entry_points_on(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Entry points of a group by name, read once for each search path."""
    return {point.name: point for point in entry_points(group=group)}
