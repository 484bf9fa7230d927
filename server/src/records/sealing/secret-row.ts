/** What a secret of the installation is sealed for. */
export function secretRow(name: string): string {
  return `secrets/${name}`;
}
