//! Times of the day as the clock on this host's wall shows them.
#![allow(unsafe_code, reason = "only the C library knows the time zone")]

use std::mem::MaybeUninit;

/// The last moment before `now` at which it was that time (`12:00`, `12:00:30`) here, in seconds of
/// the Unix epoch.
pub fn last(text: &str, now_unix_s: u64) -> Option<u64> {
    let mut numbers = text.split(':').map(|part| {
        let fits = matches!(part.len(), 1 | 2) && part.bytes().all(|it| it.is_ascii_digit());
        part.parse::<i32>().ok().filter(|_| fits)
    });
    let (hour, minute) = (numbers.next()??, numbers.next()??);
    let second = numbers.next().unwrap_or(Some(0))?;
    if numbers.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let now = now_unix_s.try_into().ok()?;
    let mut day = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are to values of their type, and outlive the call.
    let known = unsafe { libc::localtime_r(&raw const now, day.as_mut_ptr()) };
    if known.is_null() {
        return None;
    }
    // SAFETY: what is not null is the structure, which the call has filled.
    let day = unsafe { day.assume_init() };
    [day.tm_mday, day.tm_mday - 1].into_iter().find_map(|mday| {
        let mut at = libc::tm {
            tm_mday: mday,
            tm_hour: hour,
            tm_min: minute,
            tm_sec: second,
            // The C library finds out whether that is summer time.
            tm_isdst: -1,
            ..day
        };
        // SAFETY: the pointer is to a structure of that type, and outlives the call.
        let unix_s = unsafe { libc::mktime(&raw mut at) };
        u64::try_from(unix_s).ok().filter(|unix_s| *unix_s <= now_unix_s)
    })
}

#[cfg(test)]
mod tests {
    use super::last;

    #[test]
    fn a_time_of_the_day_is_its_last_one() {
        const DAY_S: u64 = 86_400;
        let now = 1_700_000_000;
        let noon = last("12:00", now).expect("a time");
        assert!(noon <= now && now - noon < DAY_S + 3600, "{noon}");
        assert_eq!(last("12:01:30", now).map(|it| (it + DAY_S - noon) % DAY_S), Some(90));
        for other in ["", "12", "24:00", "12:60", "1:2:3:4", "+1:00", "123:00", "12:00 UTC"] {
            assert_eq!(last(other, now), None, "{other}");
        }
    }
}
