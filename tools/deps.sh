#!/bin/sh
# usage: tools/deps.sh
# Install what is missing to build and test linnet (Debian, Ubuntu): says which package and why, then asks,
# unless CI or YES is set. Other systems: the list below says what to look for.
#
#   DEV=1      also what lint, fuzz and the second compiler need
#   CROSS=aarch64-linux-gnu-   also the cross compiler and qemu, and the target's libraries in $BUILD/sysroot
set -eu

# package, a file or command that shows it is there, why
list() {
    cat <<END
gcc              cmd:gcc              the compiler
libc6-dev        file:/usr/include/stdio.h  the C library's headers
pkg-config       cmd:pkg-config       finds the libraries
libpcre2-dev     pc:libpcre2-8        text is split into words by patterns with Unicode classes
libutf8proc-dev  pc:libutf8proc       vocabularies that normalise text (NFC, BERT, XLM-R)
libjansson-dev   pc:jansson           JSON in and out of the program
libcurl4-openssl-dev  pc:libcurl      'linnet pull' downloads models
zlib1g-dev       pc:zlib              models that come inside a wheel are unpacked
libcmocka-dev    pc:cmocka            the tests
ca-certificates  file:/etc/ssl/certs/ca-certificates.crt  downloads are verified
END
    [ -z "${DEV:-}" ] || cat <<END
clang            cmd:clang            second compiler, fuzzers
libclang-rt-dev  rt:                  sanitizers and fuzzers of clang
clang-format     cmd:clang-format     source layout
clang-tidy       cmd:clang-tidy       static checks
shellcheck       cmd:shellcheck       checks of the scripts
END
    case ${CROSS:-} in
    '') ;;
    aarch64-linux-gnu-) cat <<END ;;
gcc-aarch64-linux-gnu  cmd:aarch64-linux-gnu-gcc  cross compiler
libc6-dev-arm64-cross  file:/usr/aarch64-linux-gnu/include/stdio.h  the target's C library
qemu-user        cmd:qemu-aarch64     runs the target's programs
END
    *) echo "linnet: packages for CROSS=$CROSS are not known" >&2; exit 1 ;;
    esac
}

present() {
    case $1 in
    cmd:*) command -v "${1#cmd:}" ;;
    file:*) [ -e "${1#file:}" ] ;;
    pc:*) command -v pkg-config && pkg-config --exists "${1#pc:}" ;;
    rt:) command -v clang && [ -e "$(clang -print-file-name="libclang_rt.fuzzer-$(uname -m).a")" ] ;;
    esac >/dev/null 2>&1
}

sysroot() {
    [ -n "${CROSS:-}" ] || return 0
    sh "$(dirname "$0")/sysroot.sh" arm64 "${BUILD:-build}/sysroot" libc6-dev libpcre2-dev libutf8proc-dev libjansson-dev \
        libcurl4-openssl-dev zlib1g-dev libcmocka-dev
}

names=$(list | while read -r package test _; do
    present "$test" || echo "$package"
done)
if [ -z "$names" ]; then
    sysroot
    exit 0
fi

echo "linnet needs these packages:" >&2
list | while read -r package _ why; do
    case " $(echo "$names" | tr '\n' ' ')" in
    *" $package "*) printf '  %-22s %s\n' "$package" "$why" >&2 ;;
    esac
done
if ! command -v apt-get >/dev/null; then
    echo "linnet: this system has no apt-get: install them, or what they are called here, and run make again" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "linnet: installing packages needs root, and there is no sudo: ask an administrator" >&2
        exit 1
    }
    sudo=sudo
fi
if [ -z "${CI:-}${YES:-}" ]; then
    if [ ! -t 0 ]; then
        echo "linnet: run again with YES=1 to install them" >&2
        exit 1
    fi
    printf 'Install them with apt-get? [Y/n] ' >&2
    read -r answer
    case $answer in '' | [Yy]*) ;; *) exit 1 ;; esac
fi
# shellcheck disable=SC2086
{
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update &&
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
            -o Dpkg::Use-Pty=0 install $names >/dev/null
} || {
    echo "linnet: apt-get failed; see above" >&2
    exit 1
}
sysroot
