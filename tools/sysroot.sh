#!/bin/sh
# usage: tools/sysroot.sh ARCH DIR PACKAGE...
#
# Unpack Debian packages of another architecture, with all they need, into the private folder DIR: headers and
# libraries for a cross build, and what qemu-user needs to run it (`qemu-aarch64 -L DIR`). Nothing is
# installed: the machine's own packages and foreign architectures stay as they are, so nothing can conflict.
# Uses the machine's apt sources, with lists and cache of its own below DIR.
set -eu
arch=$1 dir=$2
shift 2
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
stamp="$dir/.complete-$arch"
want="$*"
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && exit 0

apt=$dir/.apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
: >"$apt/status"
conf=$apt/apt.conf
cat >"$conf" <<END
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Get::AllowUnauthenticated "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
Dir::Etc::trusted "/etc/apt/trusted.gpg";
Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Acquire::Retries "3";
END
export APT_CONFIG="$conf"
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq -y --download-only --no-install-recommends install $want >/dev/null
for deb in "$apt"/archives/*.deb; do
    dpkg -x "$deb" "$dir"
done
# Absolute links inside the packages would lead out of the folder.
find "$dir/usr/lib" "$dir/lib" -xtype l -lname '/*' 2>/dev/null | while read -r link; do
    target=$(readlink "$link")
    [ -e "$dir$target" ] && ln -sfr "$dir$target" "$link"
done
rm -rf "$apt"
printf '%s\n' "$want" >"$stamp"
