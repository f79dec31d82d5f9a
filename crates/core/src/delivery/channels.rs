//! Channels by number: made when they are first used, found in few steps, and in turns.
//!
//! A channel that is at rest is nothing but the number of its next part. When memory is given back,
//! only that is kept of it: so a player who has used all channels once costs no more than others.

use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::delivery::PartSeq;

/// What has a channel's number.
pub(super) trait Numbered {
    /// A channel at rest whose next part has that number.
    fn resting(channel: u8, next: PartSeq) -> Self;

    /// Its number.
    fn number(&self) -> u8;

    /// The number of its next part, if it is at rest: nothing waits here, and nothing is missed.
    fn rests_at(&self) -> Option<PartSeq>;
}

/// The channels that have been used, by number.
#[derive(Debug)]
pub(super) struct Channels<T> {
    used: Vec<T>,
    /// The next part's number of each that is not among them; all of these are 0 where there is
    /// none.
    resting: Option<Box<[u16; CHANNELS]>>,
}

impl<T: Numbered> Channels<T> {
    pub(super) const fn new() -> Self {
        Self { used: Vec::new(), resting: None }
    }

    /// The channel, which is new if it was never used.
    pub(super) fn open(&mut self, channel: u8) -> &mut T {
        let place = match self.place(channel) {
            Ok(place) => place,
            Err(place) => {
                self.used.insert(place, T::resting(channel, self.next_at_rest(channel)));
                place
            }
        };
        &mut self.used[place]
    }

    /// The channel, if it is not at rest.
    pub(super) fn find(&mut self, channel: u8) -> Option<&mut T> {
        self.place(channel).ok().map(|place| &mut self.used[place])
    }

    /// The channel, if it is not at rest.
    pub(super) fn get(&self, channel: u8) -> Option<&T> {
        self.place(channel).ok().map(|place| &self.used[place])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.used.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.used.iter_mut()
    }

    /// Keeps of channels at rest their numbers only.
    pub(super) fn trim(&mut self) {
        let Self { used, resting } = self;
        used.retain(|channel| {
            let Some(next) = channel.rests_at() else { return true };
            let numbers = resting.get_or_insert_with(|| Box::new([0; CHANNELS]));
            numbers[usize::from(channel.number())] = next.value() as u16;
            false
        });
        used.shrink_to_fit();
    }

    /// What the channels take, and what `of_one` says of each.
    pub(super) fn heap_bytes(&self, of_one: impl Fn(&T) -> usize) -> usize {
        let resting = self.resting.as_ref().map_or(0, |numbers| size_of_val(&**numbers));
        let used = self.used.capacity() * size_of::<T>();
        resting + used + self.used.iter().map(of_one).sum::<usize>()
    }

    /// Writes them, each as `write_one` does.
    pub(super) fn hand_over(&self, out: &mut Writer<'_>, write_one: impl Fn(&T, &mut Writer<'_>)) {
        let mut count = self.used.len() as u32;
        self.for_each_at_rest(|_, _| count += 1);
        count.write(out);
        let mut used = self.used.iter().peekable();
        self.for_each_at_rest(|channel, next| {
            while let Some(before) = used.next_if(|used| used.number() < channel) {
                write_one(before, out);
            }
            write_one(&T::resting(channel, next), out);
        });
        used.for_each(|channel| write_one(channel, out));
    }

    /// Every channel that was used and is at rest, with the number of its next part.
    fn for_each_at_rest(&self, mut each: impl FnMut(u8, PartSeq)) {
        let Some(numbers) = &self.resting else { return };
        let mut used = self.used.iter().map(T::number).peekable();
        for (channel, next) in (0..=u8::MAX).zip(numbers.iter()) {
            let is_used = used.next_if_eq(&channel).is_some();
            if *next != 0 && !is_used {
                each(channel, PartSeq::new((*next).into()));
            }
        }
    }

    fn next_at_rest(&self, channel: u8) -> PartSeq {
        let next = self.resting.as_ref().map_or(0, |numbers| numbers[usize::from(channel)]);
        PartSeq::new(next.into())
    }

    /// Reads them.
    pub(super) fn take_over(
        from: &mut Reader<'_>,
        mut read_one: impl FnMut(&mut Reader<'_>) -> Result<T, Broken>,
    ) -> Result<Self, Broken> {
        let mut all = Vec::<T>::new();
        for _ in 0..u32::read(from)? {
            let channel = read_one(from)?;
            if all.last().is_some_and(|last| last.number() >= channel.number()) {
                return Err(Broken::Invalid("order of channels"));
            }
            all.push(channel);
        }
        Ok(Self { used: all, resting: None })
    }

    fn place(&self, channel: u8) -> Result<usize, usize> {
        self.used.binary_search_by_key(&channel, T::number)
    }
}

/// How many channels there are of a kind.
const CHANNELS: usize = 1 << u8::BITS;

/// Numbers of channels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers([u64; 4]);

impl Numbers {
    pub(super) const NONE: Self = Self([0; 4]);

    pub(super) fn set(&mut self, channel: u8, is_in: bool) {
        let bit = 1 << (channel % 64);
        let word = &mut self.0[usize::from(channel / 64)];
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        let first = self.from(0);
        let next = |channel: &u8| self.from(channel.checked_add(1)?).filter(|next| next > channel);
        std::iter::successors(first, next)
    }

    /// The first number from this one on, after 255 from 0.
    pub(super) fn from(&self, channel: u8) -> Option<u8> {
        let (start, above) = (usize::from(channel / 64), u64::MAX << (channel % 64));
        // The first word is looked at twice: its upper bits first, all of it last.
        (0..=self.0.len()).find_map(|step| {
            let index = (start + step) % self.0.len();
            let word = if step == 0 { self.0[index] & above } else { self.0[index] };
            (word != 0).then(|| (index * 64) as u8 + word.trailing_zeros() as u8)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carry::Maps;

    struct Channel {
        number: u8,
        next: PartSeq,
        is_busy: bool,
    }

    impl Numbered for Channel {
        fn resting(number: u8, next: PartSeq) -> Self {
            Self { number, next, is_busy: false }
        }

        fn number(&self) -> u8 {
            self.number
        }

        fn rests_at(&self) -> Option<PartSeq> {
            (!self.is_busy).then_some(self.next)
        }
    }

    fn written(channels: &Channels<Channel>) -> Vec<(u8, u64)> {
        let mut memory = [0; 4096];
        let mut out = Writer::new(&mut memory);
        channels.hand_over(&mut out, |channel, out| {
            (channel.number, channel.next.value() as u16).write(out);
        });
        let (len, maps) = (out.len(), Maps::default());
        let mut from = Reader::new(&memory[..len], &maps);
        let read = Channels::<Channel>::take_over(&mut from, |from| {
            let (number, next) = <(u8, u16)>::read(from)?;
            Ok(Channel::resting(number, PartSeq::new(next.into())))
        });
        let read = read.expect("what was written is read");
        from.end().expect("and nothing else");
        read.used.iter().map(|channel| (channel.number, channel.next.value())).collect()
    }

    #[test]
    fn a_channel_at_rest_goes_on_where_it_was() {
        let mut channels = Channels::<Channel>::new();
        for (number, next) in [(0, 7), (3, 0), (200, 1023), (255, 1), (64, 9)] {
            channels.open(number).next = PartSeq::new(next);
        }
        channels.open(64).is_busy = true;
        let all = [(0, 7), (64, 9), (200, 1023), (255, 1)];
        assert_eq!(written(&channels).len(), 5);
        channels.trim();
        assert_eq!((channels.used.len(), written(&channels)), (1, all.to_vec()));
        assert!(channels.get(64).is_some() && channels.find(200).is_none());
        for (number, next) in all {
            assert_eq!(channels.open(number).next.value(), next);
        }
        channels.open(200).next = PartSeq::new(5);
        assert_eq!(written(&channels), [(0, 7), (64, 9), (200, 5), (255, 1)]);
        channels.open(64).is_busy = false;
        channels.trim();
        assert_eq!(written(&channels), [(0, 7), (64, 9), (200, 5), (255, 1)]);
        assert_eq!(channels.open(3).next.value(), 0);
    }

    #[test]
    fn every_number_gets_its_turn() {
        let mut numbers = Numbers::default();
        assert_eq!((numbers.from(0), numbers.iter().next()), (None, None));
        let members = [0_u8, 5, 63, 64, 200, 255];
        for channel in members {
            numbers.set(channel, true);
        }
        assert!(numbers.iter().eq(members));
        for from in 0..=255_u8 {
            let expected = members.iter().find(|&&channel| channel >= from).unwrap_or(&0);
            assert_eq!(numbers.from(from), Some(*expected));
        }
        for &channel in &members[1..] {
            numbers.set(channel, false);
        }
        assert_eq!((numbers.from(1), numbers.from(0)), (Some(0), Some(0)));
        numbers.set(0, false);
        numbers.set(70, true);
        assert_eq!(
            (numbers.from(71), numbers.from(70), numbers.from(0)),
            (Some(70), Some(70), Some(70))
        );
    }
}
