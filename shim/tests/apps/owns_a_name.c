/* A program that exports NAME itself: a function, or with -DDATA a variable that holds the driver's function. It
 * looks NAME up in every way and calls the result. stdout is the same with and without the library; stderr shows
 * which function was called. */
#include "who.h"
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
typedef int (*function)(void *, void *);
typedef int (*look)(const char *, void **, int, uint64_t, int *);
static uint64_t place[16];
static int entered;

static function in_the_library(void) { return (function)dlsym(dlopen(LIBRARY, RTLD_NOW), TEXT(NAME)); }
#ifdef DATA
function NAME;
#else
int NAME(void *first, void *second) {
    if (++entered > 1) { printf("called by itself\n"); exit(1); }
    int answer = in_the_library()(first, second);
    entered--;
    return answer;
}
#endif

static void *own = (void *)&NAME;
static void tell(const char *way, void *found) { printf("%s %s\n", way, !found ? "null" : found == own ? "own" : "other"); }

int main(void) {
    function by_handle = in_the_library();
    void *by_address = 0;
    int status;
    tell("default", dlsym(RTLD_DEFAULT, TEXT(NAME)));
    tell("self", dlsym(dlopen(0, RTLD_NOW), TEXT(NAME)));
    tell("next", dlsym(RTLD_NEXT, TEXT(NAME)));
    tell("handle", (void *)by_handle);
    tell("dlvsym", dlvsym(RTLD_DEFAULT, TEXT(NAME), "NONE_1.0"));
    printf("answer %d\n", by_handle(FIRST, SECOND));
#ifdef DATA
    NAME = by_handle;
#endif
    printf("its own answer %d\n", NAME(FIRST, SECOND));
    look get = (look)dlsym(dlopen(LIBRARY, RTLD_NOW), "cuGetProcAddress_v2");
    if (get && !get(BASE, &by_address, 12000, 0, &status) && by_address) {
        tell("cuGetProcAddress", by_address);
        printf("answer %d\n", ((function)by_address)(FIRST, SECOND));
    }
    fprintf(stderr, "%s\n", who((void *)by_handle));
    return 0;
}
