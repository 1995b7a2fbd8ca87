#!/bin/sh
# The Java of an executor: makes a control group with a CPU limit, moves in, and becomes the real Java.
# Whatever fails is said on standard error, and the executor starts all the same.
# SETTINGS
say() {
    echo "tidewise: the CPU of this executor is not limited: $1" >&2
}

set_quota() {
    if [ "$version" = 1 ]; then
        echo "$period_us" > "$limits/$group/cpu.cfs_period_us" && echo "$1" > "$limits/$group/cpu.cfs_quota_us"
    else
        echo "$1 $period_us" > "$limits/$group/cpu.max"
    fi
}

get_quota() {
    if [ "$version" = 1 ]; then
        cat "$limits/$group/cpu.cfs_quota_us"
    else
        read -r quota_now _ < "$limits/$group/cpu.max" && echo "$quota_now"
    fi
}

# Ends by itself: after the boost, or soon after the executor did. Leaves a limit alone that somebody else has set.
tighten() {
    waited_s=0
    while [ "$waited_s" -lt "$boost_s" ]; do
        sleep 1
        kill -0 "$1" || return
        waited_s=$((waited_s + 1))
    done
    [ "$(get_quota)" = "$boosted_us" ] && set_quota "$limit_us"
}

limit() {
    case "$cores" in
        *[!0-9.]* | *.*.* | .) say "TIDEWISE_CORES is '$cores', not a number such as 0.5" && return ;;
    esac
    case "$boost_s" in
        '' | *[!0-9]*) boost_s=20 ;;
    esac
    whole=${cores%%.*}
    fraction=
    case "$cores" in
        *.*) fraction=${cores#*.} ;;
    esac
    # The first five digits behind the point, as a whole number; the leading 1 keeps zeros from meaning octal.
    fraction=$(printf '1%.5s' "${fraction}00000")
    limit_us=$((${whole:-0} * 100000 + fraction - 100000))
    [ "$limit_us" -ge 1000 ] || limit_us=1000
    boosted_us=$limit_us
    [ "$limit_us" -ge 100000 ] || [ "$boost_s" = 0 ] || boosted_us=100000

    for folder in "$limits/$group" "$usage/$group"; do
        [ -d "$folder" ] || mkdir "$folder" || { say "its group cannot be made" && return; }
    done
    set_quota "$boosted_us" || { say "its quota cannot be set" && return; }
    if [ "$boosted_us" != "$limit_us" ]; then
        # Twice removed, so that no dead child is left to Java; in words of its own, so that nobody takes it for an
        # executor; started before the move, so that it spends none of the quota.
        (/bin/sh "$0" --tighten "$$" "$group" "$limit_us" "$boosted_us" "$boost_s" < /dev/null > /dev/null 2>&1 &)
    fi
    echo "$$" > "$limits/$group/cgroup.procs" || { say "it cannot move into its group" && return; }
    [ "$limits" = "$usage" ] || echo "$$" > "$usage/$group/cgroup.procs" || say "only its usage cannot be read"
}

if [ "$1" = --tighten ]; then
    group=$3
    limit_us=$4
    boosted_us=$5
    boost_s=$6
    tighten "$2"
    exit
fi

app=
executor=
previous=
for word in "$@"; do
    case "$previous" in
        --app-id) app=$word ;;
        --executor-id) executor=$word ;;
    esac
    previous=$word
done
group="$app.$executor"
case "$app/$executor" in
    /* | */ | *[!A-Za-z0-9_/-]*) group="process.$$" ;;
esac

cores=${TIDEWISE_CORES:-}
boost_s=${TIDEWISE_BOOST_S:-}
if [ -n "$cores" ] && [ "$version" != 0 ]; then
    limit
fi
exec "$real_java" "$@"
