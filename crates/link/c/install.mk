# What both C libraries, the game server's and the player's, install, and how: header, static and shared library, and what
# pkg-config and CMake look for. Whoever includes this has set NAME, HEADER, MAJOR, MINOR, DESCRIPTION and what the static library
# needs (PRIVATE), and says how $(STATIC) and $(BUILD)/$(SHARED) are made.

TEMPLATES := $(dir $(lastword $(MAKEFILE_LIST)))

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BUILD ?= build

LIBRARY := libringgate_$(NAME)
PACKAGE := ringgate-$(NAME)
SONAME := $(LIBRARY).so.$(MAJOR)
SHARED := $(SONAME).$(MINOR)
STATIC := $(BUILD)/$(LIBRARY).a
FOR_PKG_CONFIG := $(BUILD)/$(PACKAGE).pc
FOR_CMAKE := $(BUILD)/$(PACKAGE)-config.cmake $(BUILD)/$(PACKAGE)-config-version.cmake

all: $(STATIC) $(BUILD)/$(SHARED) $(FOR_PKG_CONFIG) $(FOR_CMAKE)

# Made each time: they say where things are, which one call of make may have otherwise than the last.
$(BUILD)/$(PACKAGE)%: $(TEMPLATES)package%.in FORCE | $(BUILD)
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
	    -e 's|@NAME@|$(NAME)|g' -e 's|@DESCRIPTION@|$(DESCRIPTION)|' -e 's|@PRIVATE@|$(PRIVATE)|' \
	    -e 's|@MAJOR@|$(MAJOR)|g' -e 's|@VERSION@|$(MAJOR).$(MINOR)|g' $< >$@

$(BUILD):
	mkdir -p $(BUILD)

install: all
	install -d $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(LIBDIR)/cmake/$(PACKAGE)
	install -m 644 $(HEADER) $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)
	install -m 644 $(BUILD)/$(SHARED) $(DESTDIR)$(LIBDIR)
	ln -sf $(SHARED) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/$(LIBRARY).so
	install -m 644 $(FOR_PKG_CONFIG) $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 644 $(FOR_CMAKE) $(DESTDIR)$(LIBDIR)/cmake/$(PACKAGE)

uninstall:
	rm -f $(DESTDIR)$(INCLUDEDIR)/$(notdir $(HEADER)) $(DESTDIR)$(LIBDIR)/$(LIBRARY).a \
	    $(DESTDIR)$(LIBDIR)/$(LIBRARY).so $(DESTDIR)$(LIBDIR)/$(SONAME) $(DESTDIR)$(LIBDIR)/$(SHARED) \
	    $(DESTDIR)$(LIBDIR)/pkgconfig/$(PACKAGE).pc
	rm -rf $(DESTDIR)$(LIBDIR)/cmake/$(PACKAGE)

clean:
	rm -rf $(BUILD)

# The Debian package, into OUT.
deb:
	$(TEMPLATES)library-deb.sh $(NAME) $(MAJOR).$(MINOR) '$(DESCRIPTION)' $(OUT)

FORCE:

.PHONY: all install uninstall clean deb FORCE
