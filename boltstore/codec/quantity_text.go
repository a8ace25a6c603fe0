package codec

import (
	"math/big"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A program may hash an object with its hidden fields, as Kubernetes' DeepHashObject does. Such
// a hash must not change when the object has been in the file. 0.5 and 500m are the same
// Quantity, but have other hidden fields. So a Quantity is stored as a text that is read as the
// same fields.

// quantityTextOf returns such a text for the Quantity in v, or its canonical text if there is none.
func quantityTextOf(v reflect.Value) string {
	q := *v.Addr().Interface().(*resource.Quantity) // String keeps its result in the Quantity
	kept := q
	canonical := q.String()
	same := func(text string) bool {
		read, err := resource.ParseQuantity(text)
		return err == nil && reflect.DeepEqual(read, kept)
	}
	if quantityText == nil || v.FieldByIndex(quantityText).Len() > 0 || same(canonical) {
		return canonical
	}
	dec := q.AsDec()
	for _, u := range unitsOf(q.Format) {
		amount, places := dec.UnscaledBig(), int(dec.Scale())+u.tens
		rest := new(big.Int)
		if amount, rest = new(big.Int).QuoRem(amount, u.factor, rest); rest.Sign() != 0 || places < 0 {
			continue
		}
		// One more digit has the text read as a number without bounds.
		for _, text := range []string{decimal(amount, places) + u.suffix, decimal(rest.Mul(amount, big.NewInt(10)), places+1) + u.suffix} {
			if same(text) {
				return text
			}
		}
	}
	return canonical
}

// unit is a suffix of a Quantity, which stands for factor times 10 to the power of tens.
type unit struct {
	suffix string
	factor *big.Int
	tens   int
}

var decimalUnits, exponentUnits, binaryUnits = units()

func unitsOf(f resource.Format) []unit {
	switch f {
	case resource.BinarySI:
		return binaryUnits
	case resource.DecimalExponent:
		return exponentUnits
	}
	return decimalUnits
}

func units() (decimals, exponents, binaries []unit) {
	for i, suffix := range []string{"", "k", "M", "G", "T", "P", "E"} {
		decimals = append(decimals, unit{suffix, big.NewInt(1), 3 * i})
	}
	for i, suffix := range []string{"m", "u", "n"} {
		decimals = append(decimals, unit{suffix, big.NewInt(1), -3 * (i + 1)})
	}
	for e := -9; e <= 18; e++ {
		exponents = append(exponents, unit{"e" + strconv.Itoa(e), big.NewInt(1), e})
	}
	for i, suffix := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		binaries = append(binaries, unit{suffix, new(big.Int).Lsh(big.NewInt(1), uint(10*(i+1))), 0})
	}
	return decimals, exponents, binaries
}

// decimal is the amount with so many decimal places.
func decimal(amount *big.Int, places int) string {
	digits := new(big.Int).Abs(amount).String()
	if missing := places + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	sign := ""
	if amount.Sign() < 0 {
		sign = "-"
	}
	if places == 0 {
		return sign + digits
	}
	return sign + digits[:len(digits)-places] + "." + digits[len(digits)-places:]
}
