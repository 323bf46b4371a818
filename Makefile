# linnet: build, test, install. `make help` lists the targets.
#
#   BUILD=dir     where everything goes (default build)
#   CC=clang      another compiler
#   CROSS=aarch64-linux-gnu-   build for another machine; tests run under RUNNER (default qemu-user)
#   CORE_ONLY=1   the core library alone: needs nothing but PCRE2
#   SAN=address,undefined | thread   build with sanitizers
#   ONLY=test_%   the test programs that `make check` runs
#   WERROR=1      warnings are errors, as in CI
#   V=1           show the commands

BUILD     ?= build
PREFIX    ?= /usr/local
DESTDIR   ?=
CROSS     ?=
SAN       ?=
ONLY      ?= %
VERSION   := 0.1.0
SOVERSION := 0

ifeq ($(origin CC),default)
CC        := $(CROSS)gcc
endif
AR        := $(CROSS)ar
Q         := $(if $(V),,@)
say        = $(if $(V),,@printf '  %-6s %s\n' $(1) $(patsubst $(BUILD)/%,%,$(2)))

TRIPLE    := $(shell $(CC) -dumpmachine 2>/dev/null)
MACHINE   := $(firstword $(subst -, ,$(TRIPLE)))
CORE_DIRS := base gguf quant kernel kernel/generic text model model/arch run decode
CORE_DIRS += $(if $(filter x86_64,$(MACHINE)),kernel/x86) $(if $(filter aarch64 arm64,$(MACHINE)),kernel/arm)

CORE_PKGS := libpcre2-8 $(if $(CORE_ONLY),,libutf8proc)
PROG_PKGS := jansson libcurl zlib
TEST_PKGS := cmocka

# A cross build takes its libraries from the private folder that `make deps CROSS=...` fills, or, without one,
# from the machine's own multiarch folders.
PKG       ?= pkg-config
RUNNER    ?=
ifneq ($(CROSS),)
SYSROOT   ?= $(abspath $(wildcard $(BUILD)/sysroot))
override PKG := env $(if $(SYSROOT),PKG_CONFIG_SYSROOT_DIR=$(SYSROOT)) \
    PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(CROSS:-=)/pkgconfig:$(SYSROOT)/usr/share/pkgconfig pkg-config
RUNNER    := $(or $(RUNNER),qemu-$(MACHINE) -L $(or $(SYSROOT),/usr/$(CROSS:-=)))
endif
pkg_cf     = $(shell $(PKG) --cflags $(1) 2>/dev/null)
pkg_libs   = $(shell $(PKG) --libs $(1) 2>/dev/null)
missing   := $(strip $(foreach p,$(CORE_PKGS) $(if $(CORE_ONLY),,$(PROG_PKGS) $(TEST_PKGS)), \
    $(shell $(PKG) --exists $(p) 2>/dev/null || echo $(p))))
# used in recipes: stops the build with the next step when a library is not there
have_pkgs  = $(if $(missing),$(error not found: $(missing). `make deps` installs what is missing))

WARN      := -Wall -Wextra -Wshadow -Wconversion -Wvla $(if $(WERROR),-Werror)
OPT       ?= -O2 -g
SAN_FLAGS := $(if $(SAN),-fsanitize=$(SAN) -DLINNET_SANITIZED -fno-omit-frame-pointer -fno-sanitize-recover=all)
FLAGS     := $(if $(SYSROOT),--sysroot=$(SYSROOT)) -std=c17 -D_GNU_SOURCE $(WARN) -fPIC -pthread
FLAGS     += -ffp-contract=off -fno-math-errno -fvisibility=hidden $(SAN_FLAGS)
FLAGS     += $(if $(CORE_ONLY),-DLINNET_CORE_ONLY) -Iinclude -Isrc -DLINNET_VERSION='"$(VERSION)"' $(call pkg_cf,$(CORE_PKGS))
LINK      := $(if $(SYSROOT),--sysroot=$(SYSROOT)) $(SAN_FLAGS) -pthread -Wl,--as-needed
CORE_LIBS := $(call pkg_libs,$(CORE_PKGS)) -lm
PROG_CF   := $(call pkg_cf,$(PROG_PKGS))
PROG_LIBS := $(call pkg_libs,$(PROG_PKGS)) $(CORE_LIBS)
TEST_CF   := $(call pkg_cf,$(TEST_PKGS)) $(PROG_CF)
TEST_LIBS := $(call pkg_libs,$(TEST_PKGS)) $(PROG_LIBS)

CORE_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(sort $(foreach d,$(CORE_DIRS),$(wildcard src/$(d)/*.c))))
CLI_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard src/cli/*.c)))
TESTS     := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/test_*.c)))
BENCHES   := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard bench/*.c)))
FUZZERS   := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard fuzz/fuzz_*.c)))
LIB       := $(BUILD)/liblinnet.a
PROG_OBJ  := $(BUILD)/cli.a $(LIB)

.PHONY: all lib check bench fuzz asan tsan demo deps install uninstall format lint clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: lib $(if $(CORE_ONLY),,$(BUILD)/linnet)  ## the program and both libraries, in build/
lib: $(LIB) $(BUILD)/liblinnet.so             ## the libraries alone

# ---- compiling --------------------------------------------------------------------------------------------
# Instruction sets: chosen per file by the end of its name, never by the machine that builds.
X86_AVX2    := -mavx2 -mfma -mf16c -mbmi2
X86_AVX512  := $(X86_AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
X86_VNNI    := $(X86_AVX512) -mavx512vnni
$(BUILD)/src/kernel/%_avx2.o:    FLAGS += $(X86_AVX2)
$(BUILD)/src/kernel/%_avx512.o:  FLAGS += $(X86_AVX512)
$(BUILD)/src/kernel/%_vnni.o:    FLAGS += $(X86_VNNI)
$(BUILD)/src/kernel/%_dotprod.o: FLAGS += -march=armv8.2-a+dotprod+fp16
ifeq ($(origin OPT),file)
$(BUILD)/src/kernel/%.o:         OPT := -O3 -g
endif
$(BUILD)/src/cli/%.o:            FLAGS += $(PROG_CF)

# Everything is built again when the compiler or its flags change.
$(BUILD)/flags: FORCE
	@$(shell mkdir -p $(@D))$(file >$@.new,$(CC) $(FLAGS) $(OPT) $(PROG_LIBS))cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/src/%.o: src/%.c $(BUILD)/flags
	$(have_pkgs)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(FLAGS) $(OPT) -MMD -MP -c $< -o $@

$(LIB): $(CORE_OBJ)
$(BUILD)/cli.a: $(filter-out %/main.o,$(CLI_OBJ))
$(LIB) $(BUILD)/cli.a:
	$(call say,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/liblinnet.so: $(CORE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LINK) -shared -Wl,-soname,liblinnet.so.$(SOVERSION) $(if $(SAN),,-Wl,-z,defs) -o $@ $^ $(CORE_LIBS)

$(BUILD)/linnet: $(BUILD)/src/cli/main.o $(PROG_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LINK) -o $@ $^ $(PROG_LIBS)

# ---- tests, measurements, fuzzing -------------------------------------------------------------------------
$(BUILD)/tests/%: tests/%.c $(PROG_OBJ) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(FLAGS) $(OPT) $(TEST_CF) -MMD -MP -MF $@.d $< $(PROG_OBJ) $(LINK) -o $@ $(TEST_LIBS)

check: all $(filter $(ONLY:%=$(BUILD)/tests/%),$(TESTS))  ## build and run every test
	@BUILD=$(BUILD) RUNNER="$(RUNNER)" sh tests/run.sh $(filter-out all,$^)

$(BUILD)/bench/%: bench/%.c $(PROG_OBJ) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,BENCH,$@)
	$(Q)$(CC) $(FLAGS) $(OPT) $(PROG_CF) -MMD -MP -MF $@.d $< $(PROG_OBJ) $(LINK) -o $@ $(PROG_LIBS)

bench: all $(BENCHES)  ## the measuring programs, in build/bench/

$(BUILD)/fuzz/%: fuzz/%.c $(PROG_OBJ) $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)
	$(Q)$(CC) $(FLAGS) $(OPT) $(PROG_CF) -MMD -MP -MF $@.d $< $(PROG_OBJ) $(LINK) -fsanitize=fuzzer -o $@ $(PROG_LIBS)

# Both use a build folder of their own, so that they can be mixed with ordinary builds.
fuzz:                  ## build the fuzzers with clang and run each for FUZZ_SECONDS (default 60)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-fuzz CC=clang SAN=fuzzer-no-link,address,undefined OPT="-O1 -g" fuzz-run
.PHONY: fuzz-run
fuzz-run: $(FUZZERS)
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) sh tools/fuzz.sh $(BUILD) $^

asan:                  ## the tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-asan SAN=address,undefined OPT="-O1 -g" check
tsan:                  ## the tests of the thread pool and the executor under ThreadSanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-tsan SAN=thread OPT="-O1 -g" RUNNER="setarch -R" \
	    ONLY="$(if $(filter %,$(ONLY)),test_pool test_session test_generate,$(ONLY))" check

# ---- the short way ----------------------------------------------------------------------------------------
demo:                  ## install what is missing, build, pull a small model, ask it something
	@sh tools/deps.sh
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(BUILD)/linnet pull smollm2
	@echo; echo 'Why is the sky blue?'; echo
	@printf '<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n' | \
	    $(BUILD)/linnet run smollm2 --special -n 120 --temp 0
	@echo; echo 'Next: $(BUILD)/linnet --help'

deps:                  ## install missing packages: DEV=1 also those of lint and fuzz, CROSS=... of a cross build
	@CROSS=$(CROSS) BUILD=$(BUILD) DEV=$(DEV) sh tools/deps.sh

format:                ## lay the sources out by .clang-format
	@sh tools/lint.sh format
lint:                  ## check layout, house rules and clang-tidy
	@BUILD=$(BUILD) TIDY_FLAGS='$(subst ','\'',$(FLAGS) $(TEST_CF))' sh tools/lint.sh

# ---- installing -------------------------------------------------------------------------------------------
BINDIR    := $(PREFIX)/bin
LIBDIR    ?= $(PREFIX)/lib
INCDIR    := $(PREFIX)/include
SHARE     := $(PREFIX)/share
put        = install -D -m $(1) $(2) $(DESTDIR)$(3)
made       = $(RUNNER) $(BUILD)/linnet $(1) > $(BUILD)/made && $(call put,644,$(BUILD)/made,$(2))

install: all           ## PREFIX (default /usr/local), DESTDIR
	$(Q)$(call put,644,include/linnet.h,$(INCDIR)/linnet.h)
	$(Q)$(call put,644,$(LIB),$(LIBDIR)/liblinnet.a)
	$(Q)$(call put,755,$(BUILD)/liblinnet.so,$(LIBDIR)/liblinnet.so.$(VERSION))
	$(Q)ln -sf liblinnet.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblinnet.so.$(SOVERSION)
	$(Q)ln -sf liblinnet.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/liblinnet.so
	$(Q)printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$(INCDIR)' '' 'Name: linnet' \
	    'Description: run large language models from GGUF files' 'Version: $(VERSION)' \
	    'Requires.private: $(CORE_PKGS)' 'Libs: -L$${libdir} -llinnet' 'Libs.private: -lm -pthread' \
	    'Cflags: -I$${includedir}' > $(BUILD)/made
	$(Q)$(call put,644,$(BUILD)/made,$(LIBDIR)/pkgconfig/liblinnet.pc)
ifeq ($(CORE_ONLY),)
	$(Q)$(call put,755,$(BUILD)/linnet,$(BINDIR)/linnet)
	$(Q)$(call put,644,man/linnet.1,$(SHARE)/man/man1/linnet.1)
	$(Q)set -e; for c in $$($(RUNNER) $(BUILD)/linnet manual); do \
	    $(call made,manual $$c,$(SHARE)/man/man1/linnet-$$c.1); done
	$(Q)$(call made,completion bash,$(SHARE)/bash-completion/completions/linnet)
	$(Q)$(call made,completion zsh,$(SHARE)/zsh/site-functions/_linnet)
	$(Q)$(call made,completion fish,$(SHARE)/fish/vendor_completions.d/linnet.fish)
endif
	$(Q)[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall:             ## what install put there
	$(Q)rm -f $(addprefix $(DESTDIR),$(INCDIR)/linnet.h $(LIBDIR)/liblinnet.a $(LIBDIR)/liblinnet.so \
	    $(LIBDIR)/liblinnet.so.$(SOVERSION) $(LIBDIR)/liblinnet.so.$(VERSION) $(LIBDIR)/pkgconfig/liblinnet.pc \
	    $(BINDIR)/linnet $(SHARE)/man/man1/linnet.1 $(SHARE)/man/man1/linnet-*.1 \
	    $(SHARE)/bash-completion/completions/linnet $(SHARE)/zsh/site-functions/_linnet \
	    $(SHARE)/fish/vendor_completions.d/linnet.fish)

clean:                 ## remove the build folder
	rm -rf $(BUILD)

help:                  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo '  Variables: see the head of the Makefile. V=1 shows the commands.'

-include $(CORE_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:=.d) $(BENCHES:=.d) $(FUZZERS:=.d)
