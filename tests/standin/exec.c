/* The interposed exec family: the kernel closes what is marked close-on-exec, and such a close flushes like any other.
 * Knows which descriptors go; knows no rule of the table.
 *
 * It has to be done before the real call, because afterwards there is nobody to do it. Where an exec then fails, the
 * process is detached though its descriptor is open; a path that can't be executed is seen before that.
 * A child of vfork or posix_spawn is attached to nothing, so its exec changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include "standin.h"

static void flush_if_closing(int fd, void *context)
{
    struct folder *f;
    (void)context;
    int marks = fcntl(fd, F_GETFD), device = node_of(fd, &f);
    if (marks < 0 || !(marks & FD_CLOEXEC) || device < 0 || node_is_restricted(fd))
        return;
    struct call c;
    call_enter(&c, f, (unsigned)device);
    node_flushed(&c);
    call_leave(&c);
}

static void before_exec(int dir, const char *path, int flags)
{
    int error = errno;
    if (!path || faccessat(dir, path, X_OK, AT_EACCESS | flags) == 0)
        node_for_each(flush_if_closing, NULL);
    errno = error;
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
{
    before_exec(AT_FDCWD, path, 0);
    return NEXT(execve)(path, arguments, environment);
}

EXPORT int execv(const char *path, char *const arguments[])
{
    return execve(path, arguments, environ);
}

EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[])
{
    before_exec(AT_FDCWD, NULL, 0); /* where it is found is its own affair */
    return NEXT(execvpe)(file, arguments, environment);
}

EXPORT int execvp(const char *file, char *const arguments[])
{
    return execvpe(file, arguments, environ);
}

EXPORT int execveat(int dir, const char *path, char *const arguments[], char *const environment[], int flags)
{
    before_exec(dir, flags & AT_EMPTY_PATH ? NULL : path, flags & AT_SYMLINK_NOFOLLOW);
    return NEXT(execveat)(dir, path, arguments, environment, flags);
}

EXPORT int fexecve(int fd, char *const arguments[], char *const environment[])
{
    before_exec(AT_FDCWD, NULL, 0);
    return NEXT(fexecve)(fd, arguments, environment);
}

/* Lays the list of arguments out as an array, and calls. */
#define EXEC_LIST(call)                                                                                                \
    va_list list;                                                                                                      \
    size_t n = 1;                                                                                                      \
    va_start(list, first);                                                                                             \
    while (va_arg(list, char *))                                                                                       \
        n++;                                                                                                           \
    va_end(list);                                                                                                      \
    char *arguments[n + 1];                                                                                            \
    arguments[0] = (char *)first;                                                                                      \
    va_start(list, first);                                                                                             \
    for (size_t i = 1; i <= n; i++)                                                                                    \
        arguments[i] = va_arg(list, char *);                                                                           \
    char *const *environment = environ;                                                                                \
    (void)environment;                                                                                                 \
    call;                                                                                                              \
    va_end(list)

EXPORT int execl(const char *path, const char *first, ...)
{
    int result;
    EXEC_LIST(result = execve(path, arguments, environment));
    return result;
}

EXPORT int execlp(const char *file, const char *first, ...)
{
    int result;
    EXEC_LIST(result = execvpe(file, arguments, environment));
    return result;
}

EXPORT int execle(const char *path, const char *first, ...)
{
    int result;
    EXEC_LIST(result = execve(path, arguments, va_arg(list, char **)));
    return result;
}
