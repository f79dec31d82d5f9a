//! Channels by number: made when they are first used, found in few steps, and in turns.

use crate::carry::{Broken, Carry, Reader, Writer};

/// What has a channel's number.
pub(super) trait Numbered {
    /// A channel that has not carried anything.
    fn new(channel: u8) -> Self;

    /// Its number.
    fn number(&self) -> u8;
}

/// The channels that have been used, by number.
#[derive(Debug)]
pub(super) struct Channels<T>(Vec<T>);

impl<T: Numbered> Channels<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The channel, which is new if it was never used.
    pub(super) fn open(&mut self, channel: u8) -> &mut T {
        let place = match self.place(channel) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, T::new(channel));
                place
            }
        };
        &mut self.0[place]
    }

    /// The channel, if it was used.
    pub(super) fn find(&mut self, channel: u8) -> Option<&mut T> {
        self.place(channel).ok().map(|place| &mut self.0[place])
    }

    /// The channel, if it was used.
    pub(super) fn get(&self, channel: u8) -> Option<&T> {
        self.place(channel).ok().map(|place| &self.0[place])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// What the channels take, and what `of_one` says of each.
    pub(super) fn heap_bytes(&self, of_one: impl Fn(&T) -> usize) -> usize {
        self.0.capacity() * size_of::<T>() + self.0.iter().map(of_one).sum::<usize>()
    }

    /// Writes them, each as `write_one` does.
    pub(super) fn hand_over(&self, out: &mut Writer<'_>, write_one: impl Fn(&T, &mut Writer<'_>)) {
        (self.0.len() as u32).write(out);
        self.0.iter().for_each(|channel| write_one(channel, out));
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
        Ok(Self(all))
    }

    fn place(&self, channel: u8) -> Result<usize, usize> {
        self.0.binary_search_by_key(&channel, T::number)
    }
}

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
