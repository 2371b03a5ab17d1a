//! How is a prompt made that has exactly so many tokens and begins like no other? Words that the server counts as one token each. Pure.
//!
//! Only the server knows its tokenizer, and it tells no more than counts. So candidates are tried in groups: a group of n words that
//! adds n tokens to a prompt has nothing but words of one token. Tokenizers split at blanks before they look for tokens, so words do not
//! change each other's count. What is left, such as the begin mark or a chat template, is a constant: the overhead.
//!
//! A prompt of n + overhead tokens is then n random words. The seed is new in every run, the first word differs from those of the prompts
//! just before, and with 64 words the chance that two prompts agree in a block of 16 tokens is 1 in 10^28: no prefix cache ever helps.

/// Words in a group. One count costs a request.
const GROUP: usize = 16;
/// Words that are enough.
pub const ENOUGH: usize = 64;
/// Fewest words to go on with: 10^24 different blocks of 16 tokens.
pub const FEWEST: usize = 32;

/// Common words: one token in nearly every tokenizer that has seen English text.
const COMMON: &str = "time people year way day man thing woman life child world school state family student group country problem hand \
part place case week company system program question work number night point home water room mother area money story fact month lot right \
study book eye job word business issue side kind head house service friend father power hour game line end member law car city community \
name president team minute idea kid body information back parent face others level office door health person art war history party result \
change morning reason research girl guy moment air teacher force education";

/// Syllables: for vocabularies that were built by rule, or from another language.
const SYLLABLES: &str = "ba be bi bo da de di do fa fe fi fo ga ge gi go ha he hi ho ja je ji jo ka ke ki ko la le li lo ma me mi mo na ne \
ni no pa pe pi po ra re ri ro sa se si so ta te ti to va ve vi vo";

/// Letters and digits, where nothing longer is one token.
const SIGNS: &str = "a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4 5 6 7 8 9";

/// Words that count as one token each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    words: Vec<&'static str>,
    overhead: u32,
}

/// Why a prompt cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The tokenizer has too few of our words.
    #[error(
        "found only {found} words that this server counts as one token each; expected at least {FEWEST}. Does its usage.prompt_tokens \
         count the tokens of the prompt?"
    )]
    TooFewWords {
        /// How many were found.
        found: usize,
    },
    /// Shorter than what the server adds.
    #[error("{tokens} tokens are too few: the server itself adds {overhead}, and a prompt needs 8 more to be unlike others")]
    TooShort {
        /// What was asked for.
        tokens: u32,
        /// What the server adds.
        overhead: u32,
    },
}

impl Vocabulary {
    /// Finds words by asking `count` for the tokens of a text. About ten questions; every failure ends the search.
    pub async fn find<E: From<Unusable>>(mut count: impl AsyncFnMut(String) -> Result<u32, E>) -> Result<Self, E> {
        let mut words = Vec::new();
        for family in [COMMON, SYLLABLES, SIGNS] {
            let candidates: Vec<&'static str> = family.split(' ').collect();
            let base = count(text(&candidates[..1])).await?;
            let mut groups: Vec<&[&'static str]> = candidates.chunks(GROUP).rev().collect();
            while let Some(group) = groups.pop().filter(|_| words.len() < ENOUGH) {
                let with_base: Vec<_> = candidates[..1].iter().chain(group).copied().collect();
                let added = count(text(&with_base)).await?.saturating_sub(base) as usize;
                if added == group.len() {
                    words.extend_from_slice(group);
                } else if group.len() > 1 && added < 2 * group.len() {
                    // Most are single: halves are worth a question each.
                    let (left, right) = group.split_at(group.len() / 2);
                    groups.extend([right, left]);
                }
            }
        }
        if words.len() < FEWEST {
            return Err(Unusable::TooFewWords { found: words.len() }.into());
        }
        let all = count(text(&words)).await?;
        // Fewer than 2^32 words by far.
        Ok(Self { overhead: all.saturating_sub(words.len() as u32), words })
    }
}

/// A blank stands before every word, also the first: it belongs to the token.
fn text(words: &[&str]) -> String {
    words.iter().flat_map(|word| [" ", word]).collect()
}

/// Makes prompts, none like another.
#[derive(Clone, Debug)]
pub struct Prompts {
    vocabulary: Vocabulary,
    random: Random,
    made: usize,
}

impl Prompts {
    /// Prompts of a run. `nonce` must differ from run to run.
    pub fn new(vocabulary: Vocabulary, nonce: u64) -> Self {
        let mut random = Random(nonce);
        // Where the first words begin differs between runs, too.
        let made = random.below(vocabulary.words.len());
        Self { vocabulary, random, made }
    }

    /// A new prompt of exactly so many tokens.
    pub fn of(&mut self, tokens: u32) -> Result<String, Unusable> {
        let Vocabulary { words, overhead } = &self.vocabulary;
        let count = tokens.saturating_sub(*overhead) as usize;
        if count < 8 {
            return Err(Unusable::TooShort { tokens, overhead: *overhead });
        }
        let first = words[self.made % words.len()];
        self.made += 1;
        let rest = (1..count).map(|_| words[self.random.below(words.len())]);
        let chosen: Vec<&str> = std::iter::once(first).chain(rest).collect();
        Ok(text(&chosen))
    }

    /// Tokens that the server adds to every prompt.
    pub fn overhead(&self) -> u32 {
        self.vocabulary.overhead
    }

    /// Learns from a count that was not as expected: what the server adds is not what it seemed.
    pub fn correct(&mut self, expected: u32, counted: u32) {
        let overhead = &mut self.vocabulary.overhead;
        *overhead = overhead.saturating_add(counted).saturating_sub(expected);
    }
}

/// SplitMix64: a few lines, and good enough to tell prompts apart.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        // The remainder is below `end`, so it fits.
        (self.next() % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_util::FutureExt;

    use super::*;

    /// A tokenizer that knows these words and spells others letter by letter, with a template of 5 tokens.
    fn tokens(text: &str, known: impl Fn(&str) -> bool) -> u32 {
        5 + text.split_whitespace().map(|word| if known(word) { 1 } else { word.len() as u32 }).sum::<u32>()
    }

    fn found(known: impl Fn(&str) -> bool + Copy) -> (Result<Vocabulary, Unusable>, usize) {
        let mut asked = 0;
        let result = Vocabulary::find(async |text: String| {
            asked += 1;
            Ok(tokens(&text, known))
        });
        (result.now_or_never().unwrap(), asked)
    }

    #[test]
    fn words_are_found_in_few_questions_whatever_the_tokenizer_knows() {
        let english: fn(&str) -> bool = |word| word.len() > 2 && word != "kid" && word != "water";
        let syllables: fn(&str) -> bool = |word| word.len() == 2;
        for (known, most_asked) in [(english, 40), (syllables, 40), (|_: &str| true, 10)] {
            let (vocabulary, asked) = found(known);
            let vocabulary = vocabulary.unwrap();
            assert!(vocabulary.words.len() >= FEWEST && vocabulary.words.iter().all(|word| known(word) || word.len() == 1));
            assert_eq!(vocabulary.overhead, 5);
            assert!(asked <= most_asked, "{asked}");
        }
    }

    #[test]
    fn no_candidate_stands_twice() {
        let all: Vec<&str> = [COMMON, SYLLABLES, SIGNS].iter().flat_map(|family| family.split(' ')).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_server_that_counts_no_tokens_is_refused() {
        let never = Vocabulary::find(async |_: String| Ok::<_, Unusable>(7));
        assert_eq!(never.now_or_never().unwrap(), Err(Unusable::TooFewWords { found: 0 }));
    }

    #[test]
    fn prompts_have_the_length_and_share_no_beginning_within_and_between_runs() {
        let vocabulary = found(|_| true).0.unwrap();
        let mut beginnings = BTreeSet::new();
        for nonce in 0..20 {
            let mut prompts = Prompts::new(vocabulary.clone(), nonce);
            let mut first_words = BTreeSet::new();
            for _ in 0..ENOUGH {
                let prompt = prompts.of(40).unwrap();
                assert_eq!(tokens(&prompt, |_| true), 40);
                let words: Vec<&str> = prompt.split_whitespace().collect();
                assert!(first_words.insert(words[0].to_owned()), "first words differ");
                assert!(beginnings.insert(words[..8].join(" ")), "no beginning comes twice");
            }
        }
    }

    #[test]
    fn a_wrong_overhead_is_corrected_and_short_prompts_are_refused() {
        let mut prompts = Prompts::new(found(|_| true).0.unwrap(), 1);
        prompts.correct(100, 103);
        assert_eq!(tokens(&prompts.of(40).unwrap(), |_| true), 37);
        prompts.correct(40, 37);
        assert_eq!(tokens(&prompts.of(40).unwrap(), |_| true), 40);
        assert_eq!(prompts.of(12), Err(Unusable::TooShort { tokens: 12, overhead: 5 }));
    }
}
