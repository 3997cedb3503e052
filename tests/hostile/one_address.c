/* Preloaded, it has every name below `example` resolve to 127.0.0.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    const char *last = name ? strrchr(name, '.') : NULL;
    if (last && strcmp(last, ".example") == 0)
        name = "127.0.0.1";
    return real(name, service, hints, found);
}
