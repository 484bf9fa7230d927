/** The text to sign in an epoch. In the first it is the same as before there were epochs. */
export function inEpoch(text: string, epoch: number): string {
  return epoch === 0 ? text : `${text}:epoch ${epoch}`;
}
