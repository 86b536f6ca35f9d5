/* A library whose constructor uses the driver before main, and before others' constructors; its destructor after main. */
#include "guest.h"
__attribute__((constructor(101))) static void early(void) { printf("early %d\n", start() | launches(10)); }
__attribute__((destructor)) static void late(void) {
    printf("late %d\n", launches(10));
    fflush(stdout);
}
