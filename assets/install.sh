#!/bin/sh
# Installs gpushare under PREFIX, or removes it: programs, libraries, manual pages, completions and, under /usr or /usr/local,
# the unit of the broker. From a checkout, or from a folder that holds bin/, lib/ and assets/ side by side. Needs no root under a
# prefix of your own. Doing it twice changes nothing.
#
#     assets/install.sh ~/.local
#     assets/install.sh --remove ~/.local
set -eu

usage() {
    echo "usage: $0 [--remove] PREFIX        such as ~/.local; /usr/local needs root" >&2
    exit 2
}
fail() {
    echo "$0: $*" >&2
    exit 1
}

remove=
prefix=
for word in "$@"; do
    case $word in
        --remove) remove=yes ;;
        -*) usage ;;
        *) [ -z "$prefix" ] || usage; prefix=$word ;;
    esac
done
case $prefix in
    "") usage ;;
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
while [ "$prefix" != / ] && [ "${prefix%/}" != "$prefix" ]; do prefix=${prefix%/}; done

assets=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
above=$(dirname -- "$assets")

# Every file: MODE, where it goes under the prefix, where it is: below the folders of programs, of libraries, of generated files.
# The same list installs and removes: a removal finds the manual pages where they were installed.
programs="gpushare gpushare-top gpushare-workload"
# The driver for Kubernetes is in every archive; from a checkout it is installed where cargo build --release -p gpushare-dra was
# called once.
optional="gpushare-dra"
helpers="gpushare-sim-mps"
libraries="libgpushare.so libgpushare_spank.so libcuda.so libnvidia_ml.so"
below() {
    for path in "$1"/*; do
        if [ -d "$path" ]; then below "$path"; else echo "$path"; fi
    done
}
files() {
    for name in $programs $optional; do echo "755 bin/$name $1/$name"; done
    for name in $helpers; do echo "755 lib/gpushare/$name $2/$name"; done
    for name in $libraries; do echo "644 lib/gpushare/$name $2/$name"; done
    for name in guide experiments results prometheus grafana k8s; do below "$assets/$name"; done | while read -r path; do
        echo "644 share/gpushare${path#"$assets"} $path"
    done
    for page in "$3"/gpushare.1 "$3"/gpushare-*.1; do
        if [ -e "$page" ]; then echo "644 share/man/man1/${page##*/} $page"; fi
    done
    for name in gpushare gpushare-top; do
        echo "644 share/bash-completion/completions/$name $3/$name.bash"
        echo "644 share/zsh/site-functions/_$name $3/$name.zsh"
        echo "644 share/fish/vendor_completions.d/$name.fish $3/$name.fish"
    done
    case $prefix in
        /usr | /usr/local) for unit in gpushare.service gpushare-metrics.socket; do
            echo "644 lib/systemd/system/$unit $assets/systemd/$unit"
        done ;;
    esac
}

# The process of each broker that runs from this prefix. Its file may be gone already.
brokers() {
    real=$(CDPATH='' cd -P -- "$prefix/bin" 2>/dev/null && pwd -P) || return 0
    for process in /proc/[0-9]*; do
        program=$(readlink "$process/exe" 2>/dev/null) || continue
        [ "${program% (deleted)}" = "$real/gpushare" ] || continue
        case " $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" in
            *" serve "*) echo "${process#/proc/}" ;;
        esac
    done
}

# What gpushare init wrote.
units() {
    for unit in /etc/systemd/system/gpushare.service /etc/systemd/system/gpushare-metrics.socket; do
        if grep -qsF "$prefix/bin/gpushare " /etc/systemd/system/gpushare.service && [ -e "$unit" ]; then echo "$unit"; fi
    done
}

if [ -n "$remove" ]; then
    running=$(brokers)
    units=$(units)
    files - - "$prefix/share/man/man1" | while read -r _ to _; do
        rm -f -- "$prefix/$to"
        # Only what is empty goes, and of the folders that others use as well none but an empty one.
        folder=$(dirname -- "$to")
        while [ "$folder" != . ]; do
            rmdir -- "$prefix/$folder" 2>/dev/null || break
            folder=$(dirname -- "$folder")
        done
    done
    echo "gpushare is removed from $prefix"
    for process in $running; do
        echo "process $process is a broker that goes on from the removed files; programs that run keep their limits without it." >&2
        echo "end it: systemctl disable --now gpushare, or where systemd did not start it: kill $process" >&2
    done
    for unit in $units; do
        echo "$unit starts it again: systemctl disable --now ${unit##*/}; rm $unit; systemctl daemon-reload" >&2
    done
    exit 0
fi

# A build takes minutes: whether the place can be written is found out before it.
for part in bin lib/gpushare share/man/man1; do
    folder=$prefix/$part
    while [ ! -e "$folder" ]; do folder=$(dirname -- "$folder"); done
    { [ -d "$folder" ] && [ -w "$folder" ]; } || fail "cannot write $folder; choose a prefix of your own, or use sudo"
done

if [ -e "$above/Cargo.toml" ]; then
    bin=${CARGO_TARGET_DIR:-$above/target}/release
    lib=$bin
    if command -v cargo >/dev/null 2>&1; then
        echo "building what is new: cargo build --release"
        set --
        [ ! -e "$bin/$optional" ] || set -- -p "$optional"
        # The libraries for other programs apart from the rest: without what only the tools need. Each part is built once.
        (cd "$above" &&
            cargo build --release --locked -p gpushare -p gpushare-sim -p gpushare-sim-cuda -p gpushare-sim-nvml -p gpushare-workload "$@" &&
            cargo build --release --locked -p gpushare-shim -p gpushare-spank) || fail "the build failed"
    else
        for name in $programs $helpers $libraries; do
            [ -e "$bin/$name" ] || fail "$bin/$name is not built; install Rust, or use a released archive"
            # cargo's own list of what it was made from.
            for source in "$above/Cargo.lock" $(cut -d: -f2- "$bin/${name%.so}.d" 2>/dev/null); do
                # shellcheck disable=SC3013 # Every sh of a Linux system has it.
                [ "$source" -nt "$bin/$name" ] || continue
                fail "$bin/$name is older than $source; install Rust to build it again, or use a released archive"
            done
        done
    fi
else
    bin=$above/bin
    lib=$above/lib/gpushare
fi

# The manual and the completions are written by the program itself: by GPUSHARE where the installed one is for another machine.
gpushare=${GPUSHARE:-$bin/gpushare}
[ -e "$gpushare" ] || fail "$gpushare is missing: this is neither a checkout nor a whole archive"
generated=$(mktemp -d)
trap 'rm -rf -- "$generated"' EXIT
write() { "$gpushare" "$@" || fail "$gpushare does not run here, so there are no manual pages; run $0 on the machine that will use it"; }
write man --dir "$generated" >/dev/null
for name in gpushare gpushare-top; do
    for shell in bash zsh fish; do write completions "$shell" "$name" >"$generated/$name.$shell"; done
done

files "$bin" "$lib" "$generated" | while read -r mode to from; do
    [ -e "$from" ] || case " $optional " in *" ${from##*/} "*) [ "$above/bin" = "$bin" ] || continue ;; esac
    [ -e "$from" ] || fail "$from is missing: this is neither a checkout nor a whole archive"
    mkdir -p -- "$prefix/$(dirname -- "$to")" || fail "cannot write under $prefix; choose a prefix of your own, or use sudo"
    # Beside it and then in its place: a program that runs from the old file goes on.
    cp -- "$from" "$prefix/$to.new" || fail "cannot write $prefix/$to; choose a prefix of your own, or use sudo"
    # Lines for a debugger are ten times the program; what a backtrace names stays.
    case $to in
        bin/* | lib/gpushare/*) strip --strip-debug "$prefix/$to.new" 2>/dev/null || true ;;
    esac
    case $to in
        lib/systemd/*) sed -i "s|/usr/bin/gpushare|$prefix/bin/gpushare|" "$prefix/$to.new" ;;
    esac
    chmod "$mode" "$prefix/$to.new"
    mv -f -- "$prefix/$to.new" "$prefix/$to"
done || exit 1

echo "gpushare is installed under $prefix"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "add $prefix/bin to PATH" ;;
esac
echo "next: gpushare doctor"
