/* The extensions of MX: myriexpress.h declares them all. */
#ifndef MX_EXTENSIONS_H
#define MX_EXTENSIONS_H
#include "myriexpress.h"
#endif
