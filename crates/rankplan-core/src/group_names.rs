//! Names of placement groups, many of which differ only in a number.

/// The names of groups in a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GroupNames {
    /// All have the same name.
    Same(String),
    /// Each has a number that is one more than that of the group before.
    Numbered {
        /// The text before the number.
        before: String,
        /// The number of the first group.
        first: u32,
        /// The text after the number.
        after: String,
    },
}

/// The most digits of a number that is counted: more are text.
const MOST_DIGITS: usize = 9;

impl GroupNames {
    /// The name of a group, by its position.
    pub fn get(&self, position: u32) -> String {
        match self {
            GroupNames::Same(name) => name.clone(),
            GroupNames::Numbered { before, first, after } => {
                format!("{before}{}{after}", u64::from(*first) + u64::from(position))
            }
        }
    }

    /// The names from a position on.
    #[must_use]
    pub fn from(&self, position: u32) -> Self {
        match self {
            GroupNames::Same(_) => self.clone(),
            GroupNames::Numbered { before, first, after } => {
                GroupNames::Numbered { before: before.clone(), first: first + position, after: after.clone() }
            }
        }
    }

    /// The names of so many groups and of one more with this name, if they differ at most in one number, which counts up.
    pub(crate) fn continued(&self, groups: u32, next: &str) -> Option<Self> {
        match self {
            GroupNames::Same(name) if name == next => Some(self.clone()),
            GroupNames::Same(name) if groups == 1 => counted(name, next),
            GroupNames::Numbered { before, after, .. } => {
                let number = next.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
                (number == self.number(groups)).then(|| self.clone())
            }
            GroupNames::Same(_) => None,
        }
    }

    fn number(&self, position: u32) -> String {
        match self {
            GroupNames::Same(_) => String::new(),
            GroupNames::Numbered { first, .. } => (u64::from(*first) + u64::from(position)).to_string(),
        }
    }
}

/// Two names that differ in one number, which is one more in the second.
fn counted(name: &str, next: &str) -> Option<GroupNames> {
    let (left, right) = (name.as_bytes(), next.as_bytes());
    let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    // The number may start before the first difference: 19 and 20, 10 and 11.
    let start = left[..same].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let digits = |text: &[u8]| text[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (first, after) = name.get(start..)?.split_at_checked(digits(left))?;
    let (second, rest) = next.get(start..)?.split_at_checked(digits(right))?;
    let first = number(first)?;
    (number(second)? == first + 1 && after == rest).then(|| GroupNames::Numbered {
        before: name[..start].to_owned(),
        first,
        after: after.to_owned(),
    })
}

/// The number that these digits are; `None` if it has leading zeros or is too long.
fn number(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.len() <= MOST_DIGITS && (digits.len() == 1 || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::{GroupNames, counted};

    #[test]
    fn names_that_count_up_are_one() {
        for (name, next, expected) in [
            ("a:0", "a:1", Some(("a:", 0, ""))),
            ("a9", "a10", Some(("a", 9, ""))),
            ("a19b", "a20b", Some(("a", 19, "b"))),
            ("p0v_8:0", "p1v_8:0", Some(("p", 0, "v_8:0"))),
            ("0", "1", Some(("", 0, ""))),
            ("a1", "a3", None),
            ("a2", "a1", None),
            ("a1b1", "a2b2", None),
            ("a01", "a02", None),
            ("a9", "b10", None),
            ("a", "a1", None),
            ("a1", "a12", None),
            ("a1é", "a2é", Some(("a", 1, "é"))),
            ("é1", "è2", None),
            ("a999999999", "a1000000000", None),
        ] {
            let expected = expected.map(|(before, first, after)| GroupNames::Numbered {
                before: before.into(),
                first,
                after: after.into(),
            });
            assert_eq!(counted(name, next), expected, "{name} {next}");
        }
    }
}
