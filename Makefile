# linnet: build, test, install. `make help` lists the targets.
#
#   BUILD=dir     where everything goes (default build)
#   CC=clang      another compiler; CROSS=aarch64-linux-gnu- builds for another machine
#   CORE_ONLY=1   the core library alone: needs nothing but PCRE2
#   SAN=address,undefined | thread   build with sanitizers

BUILD     ?= build
PREFIX    ?= /usr/local
CROSS     ?=
ifeq ($(origin CC),default)
CC        := $(CROSS)gcc
endif
AR        := $(CROSS)ar
PKG       ?= $(CROSS)pkg-config
SAN       ?=
RUNNER    ?=
VERSION   := 0.1.0

MACHINE   := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
CORE_DIRS := base gguf quant kernel kernel/generic text model model/arch run decode
CORE_DIRS += $(if $(filter x86_64,$(MACHINE)),kernel/x86) $(if $(filter aarch64 arm64,$(MACHINE)),kernel/arm)

CORE_PKGS := libpcre2-8
PROG_PKGS := jansson libcurl zlib
TEST_PKGS := cmocka jansson

CSTD      := -std=c17 -D_GNU_SOURCE
WARN      := -Wall -Wextra -Wshadow -Wconversion
OPT       ?= -O2 -g
FLAGS     := $(CSTD) $(WARN) $(OPT) -fPIC -pthread -ffp-contract=off -fno-math-errno -fvisibility=hidden
FLAGS     += -Iinclude -Isrc -DLINNET_VERSION='"$(VERSION)"' $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
CORE_CF   := $(shell $(PKG) --cflags $(CORE_PKGS) 2>/dev/null)
CORE_LIBS := $(shell $(PKG) --libs $(CORE_PKGS) 2>/dev/null || echo -lpcre2-8) -lm -pthread
LINK      := $(if $(SAN),-fsanitize=$(SAN))

CORE_SRC  := $(sort $(foreach d,$(CORE_DIRS),$(wildcard src/$(d)/*.c)))
CLI_SRC   := $(sort $(wildcard src/cli/*.c))
TEST_SRC  := $(sort $(wildcard tests/test_*.c))
CORE_OBJ  := $(CORE_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ   := $(CLI_SRC:%.c=$(BUILD)/%.o)
TESTS     := $(TEST_SRC:tests/%.c=$(BUILD)/tests/%)

.PHONY: all lib check clean
all: lib $(if $(CORE_ONLY),,$(BUILD)/linnet)
lib: $(BUILD)/liblinnet.a $(BUILD)/liblinnet.so

# Instruction sets: chosen per file by the end of its name, never by the machine that builds.
X86_AVX2    := -mavx2 -mfma -mf16c -mbmi2
X86_AVX512  := $(X86_AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
X86_VNNI    := $(X86_AVX512) -mavx512vnni
$(BUILD)/src/kernel/%_avx2.o:    FLAGS += $(X86_AVX2)
$(BUILD)/src/kernel/%_avx512.o:  FLAGS += $(X86_AVX512)
$(BUILD)/src/kernel/%_vnni.o:    FLAGS += $(X86_VNNI)
$(BUILD)/src/kernel/%_dotprod.o: FLAGS += -march=armv8.2-a+dotprod+fp16
$(BUILD)/src/kernel/%_i8mm.o:    FLAGS += -march=armv8.2-a+dotprod+fp16+i8mm
$(BUILD)/src/kernel/%.o:         OPT := -O3 -g
$(BUILD)/src/quant/%.o:          OPT := -O3 -g

$(BUILD)/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(OPT) $(CORE_CF) -MMD -MP -c $< -o $@

$(BUILD)/src/cli/%.o: FLAGS += $(shell $(PKG) --cflags $(PROG_PKGS) 2>/dev/null)

$(BUILD)/liblinnet.a: $(CORE_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/liblinnet.so: $(CORE_OBJ)
	$(CC) $(LINK) -shared -Wl,-soname,liblinnet.so.0 -o $@ $^ $(CORE_LIBS)
$(BUILD)/cli.a: $(filter-out %/main.o,$(CLI_OBJ))
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/linnet: $(BUILD)/src/cli/main.o $(BUILD)/cli.a $(BUILD)/liblinnet.a
	$(CC) $(LINK) -o $@ $^ $(shell $(PKG) --libs $(PROG_PKGS) 2>/dev/null) $(CORE_LIBS)

$(BUILD)/tests/%: tests/%.c tests/test.h $(BUILD)/cli.a $(BUILD)/liblinnet.a
	@mkdir -p $(@D)
	$(CC) $(FLAGS) $(OPT) $(shell $(PKG) --cflags $(TEST_PKGS)) -MMD -MP -MF $@.d $< $(BUILD)/cli.a $(BUILD)/liblinnet.a $(LINK) -o $@ $(shell $(PKG) --libs $(TEST_PKGS) $(PROG_PKGS)) $(CORE_LIBS)

check: all $(TESTS)
	@BUILD=$(BUILD) RUNNER="$(RUNNER)" sh tests/run.sh $(TESTS)

clean:
	rm -rf $(BUILD)

-include $(CORE_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TESTS:=.d)
